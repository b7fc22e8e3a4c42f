//! What is said about pods without a place, and about launches.

use super::builder::*;
use plimsoll_model::names::label;
use plimsoll_model::plan::ReasonCode;
use plimsoll_model::requirements::Operator;
use plimsoll_model::snapshot::PodShape;
use plimsoll_model::taints::TaintEffect;

fn plan_of(cluster: &mut Cluster, shape: &PodShape) -> plimsoll_model::plan::Plan {
    cluster.pending("p", 1, shape).plan()
}

#[test]
fn figures_are_those_that_decide() {
    let plan = plan_of(&mut Cluster::new(), &shape(1000, 100));
    let text = "needs 100Gi memory, the largest allowed type has 64Gi beside its DaemonSets";
    assert_eq!(told(&plan, ReasonCode::InsufficientResources), text);
    let mut cluster = Cluster::new();
    cluster.pool().requirements.push(requirement("karpenter.k8s.aws/instance-category", Operator::In, &["c", "r"]));
    cluster.catalog.instance_types.retain(|one| one.name == "c5.2xlarge" || one.name == "r5.xlarge");
    let plan = plan_of(&mut cluster, &shape(7000, 16 + 1));
    let text = "no allowed type has 7 cpu, 17Gi memory at once beside its DaemonSets";
    assert_eq!(told(&plan, ReasonCode::InsufficientResources), text);
    let mut cluster = Cluster::new();
    cluster.pool().limits.set("cpu", 3000);
    cluster.pool().limits.set("nodes", 5);
    cluster.node("n1", "c5.large").cordoned = true;
    let plan = plan_of(&mut cluster, &shape(1500, 1));
    let text = "the limits of the NodePool leave 1 of 3 cpu, too little for any type that would do";
    assert_eq!(told(&plan, ReasonCode::LimitReached), text);
}

#[test]
fn of_requirements_only_those_are_named_that_exclude_everything() {
    let mut one = shape(100, 1);
    one.node_selector =
        [(label::ARCH.to_owned(), "amd64".to_owned()), (label::ZONE.to_owned(), "zone-x".to_owned())].into();
    let plan = plan_of(&mut Cluster::new(), &one);
    let text = "nothing that the NodePool allows satisfies topology.kubernetes.io/zone In [zone-x] (there is zone-a, zone-b, zone-c)";
    assert_eq!(told(&plan, ReasonCode::RequirementsIncompatible), text);
    // Each for itself could be had.
    let family = |name| requirement("karpenter.k8s.aws/instance-family", Operator::In, &[name]);
    let size = requirement(label::INSTANCE_TYPE, Operator::In, &["m5.large"]);
    let mut both = shape(100, 1);
    both.required_node_affinity = vec![term(&[family("c5"), requirement(label::OS, Operator::In, &["linux"]), size])];
    let plan = plan_of(&mut Cluster::new(), &both);
    let text = told(&plan, ReasonCode::RequirementsIncompatible);
    assert!(text.contains(" together with ") && !text.contains(label::OS), "{text}");
    // A label that nobody has, and a name that no new node can have.
    let mut odd = shape(100, 1);
    odd.node_selector = [("rack".to_owned(), "r1".to_owned())].into();
    let plan = plan_of(&mut Cluster::new(), &odd);
    assert!(told(&plan, ReasonCode::RequirementsIncompatible).ends_with("rack In [r1] (no such label here)"));
    odd.node_selector = [(label::HOSTNAME.to_owned(), "n1".to_owned())].into();
    let plan = plan_of(&mut Cluster::new(), &odd);
    assert!(told(&plan, ReasonCode::RequirementsIncompatible).ends_with("which names a node"));
}

#[test]
fn what_the_pool_itself_excludes_is_said_of_the_pool() {
    let mut cluster = Cluster::new();
    cluster.pool().requirements.push(requirement(label::ZONE, Operator::In, &["zone-x"]));
    let plan = plan_of(&mut cluster, &shape(100, 1));
    let text = told(&plan, ReasonCode::RequirementsIncompatible);
    assert!(
        text.starts_with(
            "no offering of the node class satisfies the NodePool's own topology.kubernetes.io/zone In [zone-x]"
        ),
        "{text}"
    );
    let mut cluster = Cluster::new();
    cluster
        .pool()
        .requirements
        .extend([requirement("team", Operator::In, &["a"]), requirement("team", Operator::NotIn, &["a"])]);
    let plan = plan_of(&mut cluster, &shape(100, 1));
    assert_eq!(told(&plan, ReasonCode::RequirementsIncompatible), "requirements of the NodePool contradict each other");
    let mut cluster = Cluster::new();
    let mut families = requirement("karpenter.k8s.aws/instance-family", Operator::Exists, &[]);
    families.min_values = Some(9);
    cluster.pool().requirements.push(families);
    let plan = plan_of(&mut cluster, &shape(100, 1));
    let text =
        "minValues of the NodePool asks for 9 values of karpenter.k8s.aws/instance-family, of which at most 3 would do";
    assert_eq!(told(&plan, ReasonCode::MinValuesNotMet), text);
}

#[test]
fn pools_that_can_launch_nothing_are_reported_without_any_pod() {
    let mut nowhere = pool("nowhere");
    nowhere.requirements.push(requirement(label::ZONE, Operator::In, &["zone-x"]));
    let mut few = pool("few");
    let mut families = requirement("karpenter.k8s.aws/instance-family", Operator::In, &["c5", "m5"]);
    families.min_values = Some(2);
    few.requirements.push(families);
    let plan = Cluster::with([nowhere.clone(), few.clone(), pool("good")]).plan();
    let codes: Vec<(&str, ReasonCode)> =
        plan.pool_problems.iter().map(|one| (one.node_pool.as_str(), one.code)).collect();
    assert_eq!(codes, [("nowhere", ReasonCode::RequirementsIncompatible)]);
    few.requirements[2].values = vec!["c5".into()];
    let plan = Cluster::with([nowhere, few]).plan();
    let codes: Vec<ReasonCode> = plan.pool_problems.iter().map(|one| one.code).collect();
    assert_eq!(codes, [ReasonCode::MinValuesNotMet, ReasonCode::RequirementsIncompatible]);
}

#[test]
fn topology_is_told_by_its_counts() {
    let mut web = app("web", 500);
    web.topology_spread = vec![spread(label::ZONE, 1)];
    web.topology_spread[0].min_domains = Some(9);
    let plan = Cluster::new().pending("web", 4, &web).plan();
    let text = "topology spread over topology.kubernetes.io/zone: maxSkew 1, minDomains 9 of which there are 3, zone-a has 1, zone-b has 1, zone-c has 1";
    assert_eq!(told(&plan, ReasonCode::TopologyUnsatisfiable), text);
    let mut web = app("web", 500);
    web.pod_affinity = vec![affinity(label::ZONE, true, "web")];
    let plan = Cluster::new().pending("web", 4, &web).plan();
    let text = "podAntiAffinity over topology.kubernetes.io/zone: every domain has a pod that it must keep away from (zone-a, zone-b, zone-c)";
    assert_eq!(told(&plan, ReasonCode::TopologyUnsatisfiable), text);
    web.pod_affinity = vec![affinity(label::ZONE, false, "db")];
    let plan = Cluster::new().pending("web", 1, &web).plan();
    let text = "podAffinity over topology.kubernetes.io/zone: no pod that it is about is in zone-a, zone-b, zone-c";
    assert_eq!(told(&plan, ReasonCode::TopologyUnsatisfiable), text);
    web.pod_affinity = vec![affinity(label::HOSTNAME, false, "db")];
    let plan = Cluster::new().pending("web", 1, &web).plan();
    let text = "podAffinity over kubernetes.io/hostname: no pod that it is about is on any node";
    assert_eq!(told(&plan, ReasonCode::TopologyUnsatisfiable), text);
}

#[test]
fn nodes_that_are_there_are_told_by_cause() {
    let mut cluster = Cluster::with([]);
    cluster.node("n1", "c5.large").cordoned = true;
    cluster.node("n2", "c5.large").taints = vec![taint("team", TaintEffect::NoSchedule)];
    cluster.node("n3", "c5.large");
    cluster.node("n4", "c5.xlarge");
    cluster.bound("b", "n4", &shape(2500, 1));
    cluster.node("n5", "m5.2xlarge").labels.insert(label::ARCH.into(), "arm64".into());
    let mut big = shape(3000, 1);
    big.node_selector.insert(label::ARCH.into(), "amd64".into());
    let plan = plan_of(&mut cluster, &big);
    let text = "none of 5 nodes takes it: 1: cordoned, not Ready or on the way out; 1: does not tolerate the taint team=yes:NoSchedule; \
                1: not what its node selector or node affinity asks for; 2: too little cpu, at most 2 left";
    assert_eq!(told(&plan, ReasonCode::NoExistingNode), text);
    assert_eq!(refused(&plan), [ReasonCode::NoNodePool]);
    let mut cluster = Cluster::with([]);
    cluster.node("n1", "c5.large");
    let mut web = app("web", 100);
    web.pod_affinity = vec![affinity(label::ZONE, true, "web")];
    cluster.bound("w", "n1", &web);
    let plan = plan_of(&mut cluster, &web);
    let text = "the one node does not take it: 1: topology spread, affinity or anti-affinity of pods";
    assert_eq!(told(&plan, ReasonCode::NoExistingNode), text);
}

#[test]
fn a_launch_names_what_would_have_been_next() {
    let mut dear = pool("dear");
    dear.requirements.push(requirement("karpenter.k8s.aws/instance-family", Operator::In, &["r5"]));
    let mut first = pool("first");
    first.weight = 10;
    let plan = Cluster::with([dear, first]).pending("p", 1, &shape(1500, 1)).plan();
    assert_eq!(
        plan.launches[0].why,
        "NodePool first (weight 10) takes 1 pod; of 27 acceptable offerings c5.large in zone-a (on-demand) is the cheapest at 0.08 USD/h; \
         next is m5.large in zone-a (on-demand), 0.016 USD/h more; NodePool dear comes later and would cost 0.046 USD/h more"
    );
}
