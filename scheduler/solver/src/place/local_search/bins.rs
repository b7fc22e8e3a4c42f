//! Launches to which pods can be added, and whose offerings can change.

use crate::input::context::{SolveContext, tolerated};
use crate::input::custom_labels::{Narrowed, combine};
use crate::input::intern::{Amounts, Bits, add, fits, how_many};
use crate::input::offerings::{Alternative, PoolView};
use crate::place::draft::{Draft, Spare};
use crate::place::hostname_topology::Tally;
use crate::place::limits::{self, Headroom};
use crate::place::pod_groups::{DomainRestriction, PodGroup};
use plimsoll_kubesched::ports_conflict;
use plimsoll_model::catalog::Offering;
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::snapshot::{HostPort, NodePool, Pod, PodShape};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Pods with the same shape and restrictions.
pub(crate) struct BinKind {
    pub(super) shape: Id<PodShape>,
    pub(super) only: Option<Rc<DomainRestriction>>,
    pub(super) on_one_node: bool,
    /// Whether the pods need other pods on their host, possibly of their own kind.
    seeks_host: bool,
    /// Per pool: offerings that can run the pods; empty if there are none.
    pub(super) fits: IndexVec<NodePool, Vec<Alternative>>,
    /// Per pool: offerings that can run the pods, although [`Self::keep_to`] has removed the pool.
    avoided: IndexVec<NodePool, Vec<Alternative>>,
    /// Per pool: whether no ordinary offering can run the pods.
    needs_exotic: IndexVec<NodePool, bool>,
}

/// Pods of one kind.
#[derive(Debug, Clone)]
pub(crate) struct Part<'a> {
    pub(crate) kind: Id<BinKind>,
    pub(crate) pods: Vec<&'a Pod>,
}

#[derive(Debug, Clone)]
pub(crate) struct Bin<'a> {
    pub(crate) pool: Id<NodePool>,
    pub(super) parts: Vec<Part<'a>>,
    /// Offerings that the pods accept, regardless of capacity.
    pub(crate) accept: Bits<Offering>,
    /// Whether one of the pods needs an exotic offering.
    needs_exotic: bool,
    pub(crate) custom: Narrowed,
    pub(crate) load: Amounts,
    tally: Tally,
    ports: Vec<&'a HostPort>,
    /// The cheapest offering of `accept` with enough capacity.
    pub(super) best: Id<Offering>,
    /// Usage of limits.
    pub(super) charge: Amounts,
    /// The original draft, if nothing was changed.
    pub(super) draft: Option<Draft<'a>>,
}

/// All kinds of pods of the launches.
pub(crate) type BinKinds = IndexVec<BinKind, BinKind>;

pub(super) type BinId = Id<Bin<'static>>;

/// All launches; `None` if removed.
pub(super) type Bins<'a> = IndexVec<Bin<'static>, Option<Bin<'a>>>;

/// Returns the kinds of all drafts, and the drafts as bins. Drafts of pools with strict `minValues` are omitted, as
/// `None`, and drafts with pods that must not follow just any pods to their host.
pub(super) fn read<'a>(context: &SolveContext<'a>, drafts: &[Draft<'a>]) -> (BinKinds, Vec<Option<Bin<'a>>>) {
    let mut kinds = BinKinds::new();
    let mut known: BTreeMap<(Id<PodShape>, Option<*const DomainRestriction>), Id<BinKind>> = BTreeMap::new();
    let mut bins = Vec::new();
    for draft in drafts {
        let mut shapes = draft.pod_groups.iter().map(|pod_group| context.relaxation.base(pod_group.shape));
        if context.pools[draft.pool].strict_min_values || shapes.any(|one| context.topology.follows_in_circle(one)) {
            bins.push(None);
            continue;
        }
        let mut parts = Vec::new();
        for pod_group in &draft.pod_groups {
            let key = (pod_group.shape, pod_group.only.as_ref().map(Rc::as_ptr));
            let kind = known.get(&key).copied().filter(|_| !pod_group.on_one_node);
            let kind =
                kind.unwrap_or_else(|| kinds.push(BinKind::new(context, pod_group, |view| !view.strict_min_values)));
            if !pod_group.on_one_node {
                known.insert(key, kind);
            }
            parts.push(Part { kind, pods: pod_group.pods.clone() });
        }
        bins.push(Bin::of(context, &kinds, draft, parts));
    }
    (kinds, bins)
}

impl BinKind {
    /// Creates the kind of the pods in `pod_group`, for pools that `allowed` accepts.
    pub(crate) fn new(
        context: &SolveContext<'_>,
        pod_group: &PodGroup<'_>,
        allowed: impl Fn(&PoolView<'_>) -> bool,
    ) -> Self {
        let shape = &context.shapes[pod_group.shape];
        let relaxed = context.relaxation.is_required_only(pod_group.shape);
        let fits = context.pools.iter_enumerated().map(|(pool, view)| {
            let admission = allowed(view) && tolerated(&view.pool.taints, &shape.shape.tolerations, relaxed);
            if admission { context.narrowed(pod_group.shape, pool, pod_group.only.as_deref()) } else { Vec::new() }
        });
        let fits: IndexVec<NodePool, Vec<Alternative>> = fits.collect();
        let together = if pod_group.on_one_node { pod_group.pods.len() } else { 1 };
        let needs_exotic = context.pools.iter_enumerated().map(|(pool, view)| {
            view.needs_exotic(&view.any_of(&fits[pool]), (shape.requests, together), &context.ordinary[pool])
        });
        let needs_exotic = needs_exotic.collect();
        let avoided = IndexVec::filled(Vec::new(), fits.len());
        Self {
            shape: pod_group.shape,
            only: pod_group.only.clone(),
            on_one_node: pod_group.on_one_node,
            seeks_host: context.topology.seeks_host(pod_group.shape),
            fits,
            avoided,
            needs_exotic,
        }
    }

    /// Whether the pods may run on an offering of the pool without pods of other kinds.
    pub(super) fn may_use(&self, context: &SolveContext<'_>, pool: Id<NodePool>, offering: Id<Offering>) -> bool {
        self.needs_exotic[pool] || !context.pools[pool].is_exotic(offering)
    }

    /// Removes all pools of `weight_group` except `pool`, if `pool` can run the pods.
    pub(super) fn keep_to(&mut self, pool: Id<NodePool>, weight_group: &[Id<NodePool>]) {
        if self.fits.try_get(pool).is_some_and(|fits| !fits.is_empty()) {
            let all = self.fits.iter_enumerated_mut().zip(self.avoided.iter_mut());
            let others = all.filter(|((other, _), _)| *other != pool && weight_group.contains(other));
            others.for_each(|((_, fits), avoided)| *avoided = std::mem::take(fits));
        }
    }

    /// Offerings of the pool that can run the pods, also if [`Self::keep_to`] has removed the pool.
    pub(super) fn offerings(&self, pool: Id<NodePool>) -> impl Iterator<Item = Id<Offering>> {
        self.fits[pool].iter().chain(&self.avoided[pool]).flat_map(|one| one.offerings.iter())
    }

    /// Whether the pods need other pods on their host before them.
    pub(super) fn follows(&self) -> bool {
        self.seeks_host && !self.on_one_node
    }

    /// Offerings of the pool that are compatible with `custom`, and the narrowed `custom`.
    fn within(&self, pool: Id<NodePool>, custom: &Narrowed) -> Option<(Bits<Offering>, Narrowed)> {
        let all = self.fits.try_get(pool)?;
        if let [only] = all.as_slice()
            && only.custom.is_empty()
        {
            return Some((only.offerings.clone(), custom.clone()));
        }
        let custom = all.iter().find_map(|one| combine(custom, &one.custom))?;
        let mut agreeing = all.iter().filter(|one| combine(&custom, &one.custom).as_ref() == Some(&custom));
        let mut any = agreeing.next()?.offerings.clone();
        agreeing.for_each(|one| any.join(&one.offerings));
        Some((any, custom))
    }
}

impl<'a> Bin<'a> {
    pub(crate) fn empty(context: &SolveContext<'a>, pool: Id<NodePool>) -> Self {
        let view = &context.pools[pool];
        Self {
            pool,
            parts: Vec::new(),
            accept: view.usable.clone(),
            needs_exotic: false,
            custom: Narrowed::new(),
            load: vec![0; context.table.len()],
            tally: Tally::default(),
            ports: Vec::new(),
            best: Id::FIRST,
            charge: vec![0; context.table.len()],
            draft: None,
        }
    }

    fn of(context: &SolveContext<'a>, kinds: &BinKinds, draft: &Draft<'a>, mut parts: Vec<Part<'a>>) -> Option<Self> {
        let mut bin = Self::empty(context, draft.pool);
        parts.sort_by_key(|part| kinds[part.kind].follows());
        for part in parts {
            bin.extend(context, kinds, part)?;
        }
        let view = &context.pools[draft.pool];
        bin.best = *draft.offerings.first()?;
        // Its pods may need an exotic offering only together.
        bin.needs_exotic |= draft.offerings.iter().any(|offering| view.is_exotic(*offering));
        for capacity in draft.offerings.iter().map(|offering| view.capacity(*offering)) {
            bin.charge.iter_mut().zip(capacity).for_each(|(most, amount)| *most = (*most).max(*amount));
        }
        bin.draft = Some(draft.clone());
        Some(bin)
    }

    pub(super) fn price(&self, context: &SolveContext<'_>) -> i64 {
        context.pools[self.pool].price(self.best)
    }

    /// How many of `most` more pods of a kind the node may run, regardless of resources.
    pub(super) fn admission(&self, context: &SolveContext<'_>, kind: &BinKind, most: usize) -> usize {
        let shape = &context.shapes[kind.shape];
        if kind.fits.try_get(self.pool).is_none_or(Vec::is_empty) {
            return 0;
        }
        let rules = &context.topology.host_rules;
        self.tally.most_beside(rules, (shape.hosts, &shape.shape.host_ports), &self.ports, kind.on_one_node, most)
    }

    /// How many of `most` pods with these requests fit without a larger offering.
    pub(super) fn spare(&self, context: &SolveContext<'_>, requests: &[i64], most: usize) -> usize {
        let room = &context.pools[self.pool].offerings[self.best].room;
        let free: Amounts = room.iter().zip(&self.load).map(|(room, load)| room - load).collect();
        how_many(requests, &free, most)
    }

    /// The cheapest offering with `n` more pods of the kind. `admission` must allow these pods.
    pub(super) fn with(
        &self,
        context: &SolveContext<'_>,
        kind: &BinKind,
        n: usize,
        room: &Headroom,
    ) -> Option<Id<Offering>> {
        let view = &context.pools[self.pool];
        let (any, _) = kind.within(self.pool, &self.custom)?;
        let shape = &context.shapes[kind.shape];
        let mut load = self.load.clone();
        add(&mut load, shape.requests, i64::try_from(n).unwrap_or(i64::MAX));
        let needs_exotic = self.needs_exotic || kind.needs_exotic[self.pool];
        // With more pods, no cheaper offering is possible, unless they are the first that need an exotic one.
        let first = if needs_exotic == self.needs_exotic { self.best } else { Id::FIRST };
        let holds = |index: &Id<Offering>| {
            *index >= first
                && (needs_exotic || !view.is_exotic(*index))
                && any.has(*index)
                && fits(&load, &view.offerings[*index].room)
                && limits::allows(room, view.capacity(*index))
                && !ports_conflict(&shape.shape.host_ports, &view.offerings[*index].ports)
        };
        self.accept.iter().find(holds)
    }

    /// Adds the pods. Returns `None` if this is not possible; the bin must then be discarded.
    /// [`Bin::choose_offering`] chooses the offering.
    pub(crate) fn extend(&mut self, context: &SolveContext<'a>, kinds: &BinKinds, part: Part<'a>) -> Option<()> {
        let kind = &kinds[part.kind];
        let (view, shape) = (&context.pools[self.pool], &context.shapes[kind.shape]);
        if self.admission(context, kind, part.pods.len()) < part.pods.len() {
            return None;
        }
        let (any, custom) = kind.within(self.pool, &self.custom)?;
        self.accept.keep(&any);
        self.needs_exotic |= kind.needs_exotic[self.pool];
        self.custom = custom;
        if !shape.shape.host_ports.is_empty() {
            let ports = &shape.shape.host_ports;
            self.accept.retain(|index| !ports_conflict(ports, &view.offerings[index].ports));
        }
        add(&mut self.load, shape.requests, i64::try_from(part.pods.len()).unwrap_or(i64::MAX));
        self.tally.add(shape.hosts, part.pods.len());
        self.ports.extend(&shape.shape.host_ports);
        self.draft = None;
        match self.parts.iter_mut().find(|one| one.kind == part.kind) {
            Some(one) => one.pods.extend(part.pods),
            None => self.parts.push(part),
        }
        (!self.accept.is_empty()).then_some(())
    }

    /// Chooses the cheapest offering for the current pods.
    pub(super) fn choose_offering(&mut self, context: &SolveContext<'a>, room: &Headroom) -> Option<()> {
        self.best = self.accept.iter().find(|offering| self.holds(context, room, *offering))?;
        self.charge.clone_from(context.pools[self.pool].capacity(self.best));
        Some(())
    }

    /// Offerings that can run the current pods.
    pub(crate) fn fitting(&self, context: &SolveContext<'_>, room: &Headroom) -> Bits<Offering> {
        let mut fitting = self.accept.clone();
        fitting.retain(|offering| self.holds(context, room, offering));
        fitting
    }

    fn holds(&self, context: &SolveContext<'_>, room: &Headroom, offering: Id<Offering>) -> bool {
        let view = &context.pools[self.pool];
        self.fits_on(view, offering) && limits::allows(room, view.capacity(offering))
    }

    /// Whether the current pods fit on the offering and may use it.
    fn fits_on(&self, view: &PoolView<'_>, offering: Id<Offering>) -> bool {
        (self.needs_exotic || !view.is_exotic(offering)) && fits(&self.load, &view.offerings[offering].room)
    }

    /// Converts the bin to a draft: the original draft if unchanged, otherwise one that lists all offerings on which
    /// the pods fit and that use no more of the limits than the cheapest.
    pub(super) fn draft(self, context: &SolveContext<'a>, kinds: &BinKinds, room: &Headroom) -> Option<Draft<'a>> {
        if self.draft.is_some() {
            return self.draft;
        }
        let view = &context.pools[self.pool];
        let mut accept = self.accept.clone();
        accept.retain(|index| self.fits_on(view, index));
        let offerings = limits::listed(view, &accept, &self.charge, room)?;
        let limited = room.iter().any(Option::is_some);
        let spare = limited.then(|| Rc::new(Spare { accept, charge: self.charge }));
        let pod_groups = self.parts.into_iter().map(|part| {
            let kind = &kinds[part.kind];
            PodGroup { shape: kind.shape, pods: part.pods, only: kind.only.clone(), on_one_node: kind.on_one_node }
        });
        Some(Draft {
            pool: self.pool,
            pod_groups: pod_groups.collect(),
            load: self.load,
            custom: self.custom,
            offerings,
            spare,
        })
    }
}
