//! Explains why no existing or starting node can run a pod: the number of nodes by cause.

use super::amounts::at_most;
use super::taint_text;
use crate::input::context::{Admission, SolveContext, tolerated};
use crate::input::intern::fits;
use crate::place::State;
use crate::place::topology;
use plimsoll_kubesched::ports_conflict;
use plimsoll_model::index::Id;
use plimsoll_model::snapshot::{Node, PodShape};
use plimsoll_model::taints::Taint;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Why a node cannot run the pod, in the order of the message.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    Closed,
    Taint(Rc<str>),
    NotSelected,
    Volume,
    /// Index of the resource.
    TooLittle(usize),
    HostPort,
    Topology,
}

/// Text about taints that the pod does not tolerate, by the taints of a node. Many nodes have the same taints.
type TaintTexts<'a> = BTreeMap<&'a [Taint], Rc<str>>;

/// Returns `None` if there are no nodes.
pub(super) fn explain(context: &SolveContext<'_>, state: &State, shape: Id<PodShape>) -> Option<String> {
    let mut causes: BTreeMap<Cause, usize> = BTreeMap::new();
    let mut most_free: BTreeMap<usize, i64> = BTreeMap::new();
    let mut texts = TaintTexts::new();
    let open = topology::open_nodes(context, state, shape);
    for node in context.nodes.ids() {
        let is_open = open.as_ref().is_none_or(|open| open.has(node));
        let cause = cause(context, state, shape, (node, is_open), &mut texts);
        if let Cause::TooLittle(resource) = cause {
            let free = state.room(node).free.get(resource).copied().unwrap_or(0);
            most_free.entry(resource).and_modify(|most| *most = free.max(*most)).or_insert(free);
        }
        *causes.entry(cause).or_default() += 1;
    }
    let text = |(cause, count): (&Cause, &usize)| {
        let text = match cause {
            Cause::Closed => "cordoned, not Ready or being deleted".to_owned(),
            Cause::Taint(text) => text.to_string(),
            Cause::NotSelected => "node selector or node affinity does not match".to_owned(),
            Cause::Volume => "its volumes cannot be attached there".to_owned(),
            Cause::TooLittle(resource) => {
                let name = context.table.name(*resource);
                let most = most_free.get(resource).copied().unwrap_or(0).max(0);
                format!("insufficient {name} (at most {} free)", at_most(name, most))
            }
            Cause::HostPort => "its host port is taken".to_owned(),
            Cause::Topology => "topology spread, pod affinity or anti-affinity".to_owned(),
        };
        if causes.len() == 1 { text } else { format!("{count} {text}") }
    };
    let count = context.nodes.len();
    let parts: Vec<String> = causes.iter().map(text).collect();
    let nodes = if count == 1 { "node fits" } else { "nodes fit" };
    (count > 0).then(|| format!("0 of {count} {nodes}: {}", parts.join(", ")))
}

fn cause<'a>(
    context: &SolveContext<'a>,
    state: &State,
    shape: Id<PodShape>,
    (node, open): (Id<Node>, bool),
    texts: &mut TaintTexts<'a>,
) -> Cause {
    let (view, room, pods) = (&context.nodes[node], state.room(node), &context.shapes[shape]);
    if room.closed || !view.open {
        return Cause::Closed;
    }
    if !tolerated(&view.node.taints, &pods.shape.tolerations, true) {
        let taints = view.node.taints.as_slice();
        return Cause::Taint(Rc::clone(texts.entry(taints).or_insert_with(|| taint_text(taints, pods.shape).into())));
    }
    if context.admission(shape, node) == Admission::No {
        let attachable = pods.shape.attaches_to_node(view.node.name.as_str(), &view.node.labels);
        return if attachable { Cause::NotSelected } else { Cause::Volume };
    }
    if !fits(pods.requests, &room.free) {
        let short = pods.requests.iter().zip(&room.free).position(|(need, have)| *need > 0 && need > have);
        return Cause::TooLittle(short.unwrap_or(0));
    }
    let taken = ports_conflict(&pods.shape.host_ports, &room.ports);
    if taken && open && !context.topology.concerns(shape) { Cause::HostPort } else { Cause::Topology }
}
