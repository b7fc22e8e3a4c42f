//! Reasons for unschedulable pods, and reasons for launches.

use super::builder::*;
use plimsoll_model::names::label;
use plimsoll_model::plan::ReasonCode;
use plimsoll_model::requirements::Operator;
use plimsoll_model::snapshot::{HostPort, PodShape};
use plimsoll_model::taints::TaintEffect;
use std::sync::Arc;

fn plan_of(cluster: &mut Cluster, shape: &PodShape) -> plimsoll_model::plan::Plan {
    cluster.pending("p", 1, shape).plan()
}

#[test]
fn pods_of_one_shape_share_their_reasons() {
    let plan = Cluster::new().pending("p", 3, &shape(1000, 100)).plan();
    let [first, rest @ ..] = &plan.unschedulable[..] else { panic!("all have a place") };
    assert!(rest.len() == 2 && rest.iter().all(|one| Arc::ptr_eq(&one.reasons, &first.reasons)), "{plan:?}");
}

#[test]
fn shapes_with_the_same_reasons_share_them() {
    let plan = Cluster::new().pending("a", 1, &shape(1000, 100)).pending("b", 1, &shape(2000, 100)).plan();
    let [first, second] = &plan.unschedulable[..] else { panic!("not both are without a place: {plan:?}") };
    assert!(Arc::ptr_eq(&first.reasons, &second.reasons), "{plan:?}");
}

#[test]
fn figures_are_those_that_decide() {
    let plan = plan_of(&mut Cluster::new(), &shape(1000, 100));
    let text = "insufficient memory: 100Gi requested, the largest instance type of the NodePool has 64Gi";
    assert_eq!(message_of(&plan, ReasonCode::InsufficientResources), text);
    let mut cluster = Cluster::new();
    cluster.pool().requirements.push(requirement("karpenter.k8s.aws/instance-category", Operator::In, &["c", "r"]));
    cluster.catalog.instance_types.retain(|one| one.name == "c5.2xlarge" || one.name == "r5.xlarge");
    let plan = plan_of(&mut cluster, &shape(7000, 16 + 1));
    let text = "no instance type of the NodePool has 7 cpu, 17Gi memory together";
    assert_eq!(message_of(&plan, ReasonCode::InsufficientResources), text);
    let mut cluster = Cluster::new();
    cluster.pool().limits.set("cpu", 3000);
    cluster.pool().limits.set("nodes", 5);
    cluster.node("n1", "c5.large").cordoned = true;
    let plan = plan_of(&mut cluster, &shape(1500, 1));
    let text = "spec.limits.cpu is 3, 2 in use; the smallest matching instance type has 2: raise it to 4 or more";
    assert_eq!(message_of(&plan, ReasonCode::LimitReached), text);
    // The launch for the first pod lists larger types as far as the limit allows. They are not in use.
    let mut cluster = Cluster::new();
    cluster.pool().limits.set("cpu", 9000);
    let plan = cluster.pending("a", 1, &shape(1500, 1)).pending("b", 1, &shape(7500, 1)).plan();
    assert_eq!(launched(&plan), [("c5.large".to_owned(), 1)]);
    assert!(distinct(&plan, |one| &one.instance_type).contains(&"c5.2xlarge"), "{plan:#?}");
    let text = "spec.limits.cpu is 9, 2 in use; the smallest matching instance type has 8: raise it to 10 or more";
    assert_eq!(message_of(&plan, ReasonCode::LimitReached), text);
}

#[test]
fn of_requirements_only_those_are_named_that_exclude_everything() {
    let mut one = shape(100, 1);
    one.node_selector =
        [(label::ARCH.to_owned(), "amd64".to_owned()), (label::ZONE.to_owned(), "zone-x".to_owned())].into();
    let plan = plan_of(&mut Cluster::new(), &one);
    let text = "no offering of the NodePool satisfies topology.kubernetes.io/zone In [zone-x] (there is zone-a, zone-b, zone-c)";
    assert_eq!(message_of(&plan, ReasonCode::RequirementsIncompatible), text);
    // Each requirement alone can be satisfied.
    let family = |name| requirement("karpenter.k8s.aws/instance-family", Operator::In, &[name]);
    let size = requirement(label::INSTANCE_TYPE, Operator::In, &["m5.large"]);
    let mut both = shape(100, 1);
    both.required_node_affinity = vec![term(&[family("c5"), requirement(label::OS, Operator::In, &["linux"]), size])];
    let plan = plan_of(&mut Cluster::new(), &both);
    let text = message_of(&plan, ReasonCode::RequirementsIncompatible);
    assert!(text.contains(" together with ") && !text.contains(label::OS), "{text}");
    // A label that no node has, and a name that no new node can have.
    let mut odd = shape(100, 1);
    odd.node_selector = [("rack".to_owned(), "r1".to_owned())].into();
    let plan = plan_of(&mut Cluster::new(), &odd);
    let text = "no node of NodePool default has the label rack: add rack: \"r1\" to spec.template.metadata.labels of the NodePool, or \
                remove it from the pod";
    assert_eq!(message_of(&plan, ReasonCode::RequirementsIncompatible), text);
    odd.node_selector = [("karpenter.k8s.aws/instance-categry".to_owned(), "c".to_owned())].into();
    let plan = plan_of(&mut Cluster::new(), &odd);
    let text = "no node of NodePool default has the label karpenter.k8s.aws/instance-categry; did you mean \
                karpenter.k8s.aws/instance-category?";
    assert_eq!(message_of(&plan, ReasonCode::RequirementsIncompatible), text);
    odd.node_selector = [(label::INSTANCE_TYPE.to_owned(), "m5.lrage".to_owned())].into();
    let plan = plan_of(&mut Cluster::new(), &odd);
    let text = message_of(&plan, ReasonCode::RequirementsIncompatible);
    assert!(text.ends_with("[m5.lrage] (did you mean m5.large?)"), "{text}");
    odd.node_selector = [(label::HOSTNAME.to_owned(), "n1".to_owned())].into();
    let plan = plan_of(&mut Cluster::new(), &odd);
    assert!(message_of(&plan, ReasonCode::RequirementsIncompatible).ends_with("which names a node"));
    odd.node_selector.clear();
    odd.required_node_affinity = vec![term(&[requirement(label::HOSTNAME, Operator::DoesNotExist, &[])])];
    let plan = plan_of(&mut Cluster::new(), &odd);
    assert!(message_of(&plan, ReasonCode::RequirementsIncompatible).ends_with("which every node has"));
}

#[test]
fn what_the_pool_itself_excludes_is_said_of_the_pool() {
    let mut cluster = Cluster::new();
    cluster.pool().requirements.push(requirement(label::ZONE, Operator::In, &["zone-x"]));
    let plan = plan_of(&mut cluster, &shape(100, 1));
    let text = message_of(&plan, ReasonCode::RequirementsIncompatible);
    assert!(
        text.starts_with(
            "no offering of the node class satisfies the NodePool's own topology.kubernetes.io/zone In [zone-x]"
        ),
        "{text}"
    );
    let mut cluster = Cluster::new();
    cluster.catalog.instance_types.clear();
    let plan = plan_of(&mut cluster, &shape(100, 1));
    assert_eq!(
        message_of(&plan, ReasonCode::RequirementsIncompatible),
        "the catalog has no offering for the node class"
    );
    let mut cluster = Cluster::new();
    cluster
        .pool()
        .requirements
        .extend([requirement("team", Operator::In, &["a"]), requirement("team", Operator::NotIn, &["a"])]);
    let plan = plan_of(&mut cluster, &shape(100, 1));
    assert_eq!(
        message_of(&plan, ReasonCode::RequirementsIncompatible),
        "requirements of the NodePool contradict each other"
    );
    let mut cluster = Cluster::new();
    let mut families = requirement("karpenter.k8s.aws/instance-family", Operator::Exists, &[]);
    families.min_values = Some(9);
    cluster.pool().requirements.push(families);
    let plan = plan_of(&mut cluster, &shape(100, 1));
    let text =
        "minValues of the NodePool asks for 9 values of karpenter.k8s.aws/instance-family, but at most 3 are available";
    assert_eq!(message_of(&plan, ReasonCode::MinValuesNotMet), text);
    // One that is met is not named.
    let mut zones = requirement(label::ZONE, Operator::Exists, &[]);
    zones.min_values = Some(2);
    cluster.pool().requirements.push(zones.clone());
    assert_eq!(message_of(&cluster.plan(), ReasonCode::MinValuesNotMet), text);
    let mut cluster = Cluster::new();
    cluster.pool().requirements.push(zones);
    let mut web = app("web", 100);
    web.topology_spread = vec![spread(label::ZONE, 1)];
    let plan = plan_of(&mut cluster, &web);
    let text = "minValues of the NodePool asks for 2 values of topology.kubernetes.io/zone, but topology constraints permit one for each node";
    assert_eq!(message_of(&plan, ReasonCode::MinValuesNotMet), text);
}

#[test]
fn a_limit_that_excludes_types_for_min_values_is_named() {
    let mut sizes = requirement("karpenter.k8s.aws/instance-cpu", Operator::Exists, &[]);
    sizes.min_values = Some(2);
    let mut cluster = Cluster::new();
    cluster.pool().requirements.push(sizes);
    cluster.pool().limits.set("cpu", 3000);
    let plan = plan_of(&mut cluster, &shape(100, 1));
    let text = "spec.limits.cpu is 3, 0 in use; with minValues a launch counts 4: raise it to 4 or more";
    assert_eq!(message_of(&plan, ReasonCode::LimitReached), text);
    cluster.pool().limits.set("cpu", 4000);
    assert_eq!(cluster.plan().unschedulable, []);
    let plan = cluster.pending("q", 1, &shape(2000, 1)).plan();
    let text = "spec.limits.cpu is 4, 4 in use; with minValues a launch counts 4: raise it to 8 or more";
    assert_eq!(message_of(&plan, ReasonCode::LimitReached), text);
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
    let mut cluster = Cluster::new();
    cluster.daemon_set("big", &shape(100, 100));
    let plan = plan_of(&mut cluster, &shape(1000, 0));
    let text = "DaemonSets request 100Gi memory, the largest instance type of the NodePool has 64Gi";
    assert_eq!(message_of(&plan, ReasonCode::InsufficientResources), text);
    let problems: Vec<(ReasonCode, &str)> =
        plan.pool_problems.iter().map(|one| (one.code, one.message.as_str())).collect();
    assert_eq!(problems, [(ReasonCode::InsufficientResources, text)]);
}

#[test]
fn topology_is_told_by_its_counts() {
    let mut web = app("web", 500);
    web.topology_spread = vec![spread(label::ZONE, 1)];
    web.topology_spread[0].min_domains = Some(9);
    let plan = Cluster::new().pending("web", 4, &web).plan();
    let text = "topology spread over topology.kubernetes.io/zone: maxSkew 1, minDomains 9 of which there are 3, zone-a has 1, zone-b has 1, zone-c has 1";
    assert_eq!(message_of(&plan, ReasonCode::TopologyUnsatisfiable), text);
    let mut web = app("web", 500);
    web.pod_affinity = vec![affinity(label::ZONE, true, "web")];
    let plan = Cluster::new().pending("web", 4, &web).plan();
    let text = "podAntiAffinity over topology.kubernetes.io/zone: every domain has a pod that it must keep away from (zone-a, zone-b, zone-c)";
    assert_eq!(message_of(&plan, ReasonCode::TopologyUnsatisfiable), text);
    let mut cluster = Cluster::new();
    for kind in &mut cluster.catalog.instance_types {
        kind.offerings.iter_mut().for_each(|one| one.available = one.zone != "zone-c");
    }
    let plan = cluster.pending("web", 3, &web).plan();
    let text = "podAntiAffinity over topology.kubernetes.io/zone leaves only zone-c: none of the 9 matching offerings is available, nor any \
                other in zone-c: the node class may have no subnet there (status.subnets)";
    assert_eq!(message_of(&plan, ReasonCode::NoOffering), text);
    web.pod_affinity = vec![affinity(label::ZONE, false, "db")];
    let plan = Cluster::new().pending("web", 1, &web).plan();
    let text = "podAffinity over topology.kubernetes.io/zone: no pod that it is about is in zone-a, zone-b, zone-c";
    assert_eq!(message_of(&plan, ReasonCode::TopologyUnsatisfiable), text);
    web.pod_affinity = vec![affinity(label::HOSTNAME, false, "db")];
    let plan = Cluster::new().pending("web", 1, &web).plan();
    let text = "podAffinity over kubernetes.io/hostname: no pod that it is about is on any node";
    assert_eq!(message_of(&plan, ReasonCode::TopologyUnsatisfiable), text);
}

#[test]
fn a_limit_that_excludes_the_domains_which_topology_leaves_is_named() {
    let mut cluster = Cluster::new();
    cluster.catalog.instance_types.retain(|one| one.name == "c5.large" || one.name == "c5.2xlarge");
    let small = cluster.catalog.instance_types.iter_mut().filter(|one| one.name == "c5.large");
    small.for_each(|one| one.offerings.retain(|offering| offering.zone == "zone-a"));
    cluster.pool().limits.set("cpu", 6000);
    let mut web = app("web", 1500);
    web.pod_affinity = vec![affinity(label::ZONE, true, "web")];
    let plan = cluster.pending("web", 2, &web).plan();
    assert_eq!(launched(&plan), [("c5.large".to_owned(), 1)]);
    let text = "podAntiAffinity over topology.kubernetes.io/zone leaves only zone-b, zone-c: spec.limits.cpu is 6, 2 in use; the smallest \
                matching instance type has 8: raise it to 10 or more";
    assert_eq!(message_of(&plan, ReasonCode::LimitReached), text);
    cluster.pool().limits.set("cpu", 10_000);
    assert_eq!(cluster.plan().unschedulable, []);
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
    let text = "0 of 5 nodes fit: 1 cordoned, not Ready or being deleted, 1 does not tolerate the taint team=yes:NoSchedule, \
                1 node selector or node affinity does not match, 2 insufficient cpu (at most 2 free)";
    assert_eq!(message_of(&plan, ReasonCode::NoExistingNode), text);
    assert_eq!(refused(&plan), [ReasonCode::NoNodePool]);
    let mut cluster = Cluster::with([]);
    cluster.node("n1", "c5.large");
    let mut web = app("web", 100);
    web.pod_affinity = vec![affinity(label::ZONE, true, "web")];
    cluster.bound("w", "n1", &web);
    let plan = plan_of(&mut cluster, &web);
    let text = "0 of 1 node fits: topology spread, pod affinity or anti-affinity";
    assert_eq!(message_of(&plan, ReasonCode::NoExistingNode), text);
}

#[test]
fn a_taint_comes_with_the_toleration_to_add() {
    let mut cluster = Cluster::new();
    let mut bare = taint("gpu", TaintEffect::NoExecute);
    bare.value.clear();
    cluster.pool().taints = vec![taint("team", TaintEffect::NoSchedule), bare];
    let plan = plan_of(&mut cluster, &shape(100, 1));
    let text = "does not tolerate the taint team=yes:NoSchedule and gpu:NoExecute; to tolerate it, add to spec.tolerations: \
                [{key: team, operator: Equal, value: \"yes\", effect: NoSchedule}, {key: gpu, operator: Exists, effect: NoExecute}]";
    assert_eq!(message_of(&plan, ReasonCode::TaintNotTolerated), text);
}

#[test]
fn a_resource_that_no_type_has_is_said_to_be_missing() {
    let mut gpu = shape(100, 1);
    gpu.requests.set("nvidia.com/gpu", 1);
    let plan = plan_of(&mut Cluster::new(), &gpu);
    let text = "no instance type of the NodePool has nvidia.com/gpu; 1 nvidia.com/gpu requested";
    assert_eq!(message_of(&plan, ReasonCode::InsufficientResources), text);
}

#[test]
fn of_host_ports_only_those_are_named_that_a_daemon_set_takes() {
    let with_ports = |mut pod: PodShape, ports: &[u16]| {
        let port = |port: &u16| HostPort { ip: "0.0.0.0".into(), port: *port, protocol: "TCP".into() };
        pod.host_ports = ports.iter().map(port).collect();
        pod
    };
    let mut cluster = Cluster::new();
    cluster.daemon_set("agent", &with_ports(shape(100, 0), &[80, 9100]));
    let pod = with_ports(app("web", 500), &[443, 80]);
    let text = "DaemonSet kube-system/agent takes host port 80";
    assert_eq!(message_of(&plan_of(&mut cluster.clone(), &pod), ReasonCode::HostPortConflict), text);
    // Neither topology constraints nor limits are the reason.
    let mut apart = pod.clone();
    apart.pod_affinity = vec![affinity(label::HOSTNAME, true, "web")];
    let mut even = pod;
    even.topology_spread = vec![spread(label::ZONE, 1)];
    cluster.pool().limits.set("cpu", 1000);
    for pod in [apart, even] {
        assert_eq!(message_of(&plan_of(&mut cluster.clone(), &pod), ReasonCode::HostPortConflict), text);
    }
}

#[test]
fn a_limit_on_nodes_is_told_in_nodes() {
    let mut cluster = Cluster::new();
    cluster.pool().limits.set("nodes", 1);
    cluster.node("n1", "c5.large").cordoned = true;
    let plan = plan_of(&mut cluster, &shape(1500, 1));
    assert_eq!(message_of(&plan, ReasonCode::LimitReached), "spec.limits.nodes is 1, 1 in use; raise it to 2 or more");
}

#[test]
fn a_volume_elsewhere_says_where_and_what_keeps_the_pod_away() {
    let mut pod = shape(100, 1);
    let volume = |zone: &str| plimsoll_model::snapshot::VolumeTopology {
        claim: String::new(),
        driver: String::new(),
        alternatives: vec![term(&[requirement(label::ZONE, Operator::In, &[zone])])],
        problem: None,
    };
    pod.volumes = vec![volume("zone-x")];
    let mut cluster = Cluster::new();
    cluster.node("n1", "c5.large");
    let plan = plan_of(&mut cluster, &pod);
    let nowhere = "its volumes are in zone-x, where no offering that the NodePool allows is sold";
    assert_eq!(message_of(&plan, ReasonCode::VolumeProblem), nowhere);
    assert_eq!(message_of(&plan, ReasonCode::NoExistingNode), "0 of 1 node fits: its volumes cannot be attached there");
    // The zones of the NodePool are what must change, but only if its offerings are sold there.
    let mut cluster = Cluster::new();
    cluster.pool().requirements.push(requirement(label::ZONE, Operator::In, &["zone-b"]));
    assert_eq!(message_of(&plan_of(&mut cluster.clone(), &pod), ReasonCode::VolumeProblem), nowhere);
    pod.volumes = vec![volume("zone-a")];
    let text = "its volumes are in zone-a; the NodePool allows only zone-b: add zone-a to its zones";
    assert_eq!(message_of(&plan_of(&mut cluster.clone(), &pod), ReasonCode::VolumeProblem), text);
    for kind in cluster.catalog.instance_types.iter_mut().filter(|one| one.architecture == "amd64") {
        kind.offerings.retain(|one| one.zone == "zone-b");
    }
    let text = "its volumes are in zone-a, where no offering that the NodePool allows is sold";
    assert_eq!(message_of(&plan_of(&mut cluster, &pod), ReasonCode::VolumeProblem), text);
    pod.node_selector = [(label::ZONE.to_owned(), "zone-b".to_owned())].into();
    let plan = plan_of(&mut Cluster::new(), &pod);
    let text = "its volumes are in topology.kubernetes.io/zone In [zone-a], which its own node selector or node affinity excludes";
    assert_eq!(message_of(&plan, ReasonCode::VolumeProblem), text);
}

#[test]
fn a_launch_names_what_would_have_been_next() {
    let mut first = pool("first");
    first.weight = 10;
    let plan = Cluster::with([first]).pending("p", 1, &shape(1500, 1)).plan();
    assert_eq!(
        plan.launches[0].why,
        "NodePool first (weight 10) takes 1 pod; of 27 acceptable offerings c5.large in zone-a (on-demand) is the cheapest at 0.08 USD/h; \
         next is m5.large in zone-a (on-demand), 0.016 USD/h more"
    );
}
