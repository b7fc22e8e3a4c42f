//! Tests of topology constraints.

use super::*;
use plimsoll_model::snapshot::{LabelSelector, PodAffinityTerm, TopologySpread};

fn selector() -> Option<LabelSelector> {
    let match_labels = [("app".to_owned(), "web".to_owned())].into();
    Some(LabelSelector { match_labels, match_expressions: Vec::new() })
}

fn term(key: &str, anti: bool) -> PodAffinityTerm {
    let (topology_key, namespaces) = (key.into(), vec![String::new()]);
    PodAffinityTerm { anti, weight: None, topology_key, selector: selector(), namespaces }
}

/// Required affinity to pods of `app`.
fn term_of(app: &str, key: &str) -> PodAffinityTerm {
    let match_labels = [("app".to_owned(), app.to_owned())].into();
    let selector = Some(LabelSelector { match_labels, match_expressions: Vec::new() });
    PodAffinityTerm { selector, ..term(key, false) }
}

fn web(case: &mut Case, pod: &str, change: impl FnOnce(&mut PodShape)) {
    case.reshape(pod, |shape| {
        shape.labels.insert("app".into(), "web".into());
        change(shape);
    });
}

/// Required spread of the `web` pods.
fn spread(key: &str, max_skew: i32) -> TopologySpread {
    TopologySpread {
        topology_key: key.into(),
        max_skew,
        min_domains: None,
        required: true,
        selector: selector(),
        honor_node_affinity: true,
        honor_node_taints: false,
    }
}

/// Adds an empty node in zone-b.
fn add_node(case: &mut Case, change: impl FnOnce(&mut Node)) {
    let mut empty = node("n9");
    empty.labels.insert(label::ZONE.into(), "zone-b".into());
    empty.node_pool = None;
    change(&mut empty);
    case.snapshot.nodes.push(empty);
}

/// Pins the launch to zone-b.
fn pin(case: &mut Case) {
    *offerings(case) = vec![choice("a", "zone-b", 100), choice("b", "zone-b", 120)];
}

#[test]
fn required_pod_anti_affinity_is_respected() {
    let on_host = "pod ns/fits cannot run on n1: podAntiAffinity over kubernetes.io/hostname";
    rejected(on_host, |case| {
        web(case, "stays", |_| {});
        case.reshape("fits", |shape| shape.pod_affinity.push(term(label::HOSTNAME, true)));
    });
    rejected("pod ns/stays cannot run on n1: podAntiAffinity over kubernetes.io/hostname", |case| {
        web(case, "fits", |_| {});
        case.reshape("stays", |shape| shape.pod_affinity.push(term(label::HOSTNAME, true)));
    });
    rejected("pod ns/fits cannot run on n1: podAntiAffinity over topology.kubernetes.io/zone", |case| {
        web(case, "stays", |_| {});
        case.reshape("fits", |shape| shape.pod_affinity.push(term("failure-domain.beta.kubernetes.io/zone", true)));
        case.snapshot.shapes.iter_mut().flat_map(|shape| &mut shape.pod_affinity).for_each(|term| {
            term.topology_key = label::ZONE.into();
        });
    });
    accepted(|case| {
        web(case, "new", |shape| shape.pod_affinity.push(term(label::HOSTNAME, true)));
        web(case, "fits", |_| {});
    });
}

#[test]
fn required_pod_affinity_is_respected() {
    rejected("pod ns/fits cannot run on n1: podAffinity over kubernetes.io/hostname", |case| {
        case.reshape("fits", |shape| shape.pod_affinity.push(term(label::HOSTNAME, false)));
    });
    rejected("cannot run on launch launch: podAffinity over topology.kubernetes.io/zone", |case| {
        // A matching pod is in zone-a, but the launch may be in zone-b.
        web(case, "stays", |_| {});
        pin(case);
        web(case, "new", |shape| shape.pod_affinity.push(term(label::ZONE, false)));
    });
    accepted(|case| {
        web(case, "stays", |_| {});
        case.reshape("fits", |shape| shape.pod_affinity.push(term(label::HOSTNAME, false)));
    });
    accepted(|case| web(case, "new", |shape| shape.pod_affinity.push(term(label::HOSTNAME, false))));
}

/// kube-scheduler binds one pod after another. If a matching pod runs elsewhere, neither of two pods can be the first
/// in another domain.
#[test]
fn pods_that_wait_for_each_other_have_no_first_one() {
    let together = |case: &mut Case, fits: Option<PodAffinityTerm>| {
        pin(case);
        case.plan.placements.clear();
        case.plan.launches[0].pods.insert(0, pod_ref("fits"));
        web(case, "fits", |shape| shape.pod_affinity.extend(fits));
        web(case, "new", |shape| shape.pod_affinity.push(term(label::ZONE, false)));
    };
    rejected("cannot run on launch launch: podAffinity over topology.kubernetes.io/zone", |case| {
        together(case, Some(term(label::ZONE, false)));
        web(case, "stays", |_| {});
    });
    accepted(|case| together(case, Some(term(label::ZONE, false))));
    accepted(|case| {
        // Another pod that the plan puts there comes first.
        together(case, None);
        web(case, "stays", |_| {});
    });
    let each_other = |case: &mut Case| {
        pin(case);
        case.plan.placements.clear();
        case.plan.launches[0].pods.insert(0, pod_ref("fits"));
        web(case, "fits", |shape| shape.pod_affinity.push(term_of("db", label::ZONE)));
        case.reshape("new", |shape| {
            shape.labels.insert("app".into(), "db".into());
            shape.pod_affinity.push(term(label::ZONE, false));
        });
    };
    rejected("pod ns/fits cannot run on launch launch: podAffinity over topology.kubernetes.io/zone", each_other);
    accepted(|case| {
        each_other(case);
        // The first pod follows a running one, and the other follows the first.
        add_node(case, |_| {});
        case.pod("stays").state = PodState::Bound(NodeName::from("n9"));
        case.reshape("stays", |shape| drop(shape.labels.insert("app".into(), "db".into())));
    });
}

#[test]
fn pods_that_their_leaving_node_keeps_are_there_for_others() {
    // `new` needs `moves`, which runs in zone-b and moves to zone-a. The launch is in zone-b.
    let needed = |case: &mut Case| {
        pin(case);
        case.node("n2").labels.insert(label::ZONE.into(), "zone-b".into());
        web(case, "moves", |_| {});
        case.reshape("new", |shape| shape.pod_affinity.push(term(label::ZONE, false)));
    };
    rejected("cannot run on launch launch: podAffinity over topology.kubernetes.io/zone", needed);
    let protected = |case: &mut Case| {
        needed(case);
        case.pod("moves").do_not_disrupt_until = Some(Timestamp(i64::MAX));
    };
    accepted(|case| {
        protected(case);
        case.node("n2").deleting = true;
        case.plan.terminations.retain(|one| one.node.as_str() != "n2");
    });
    accepted(|case| {
        protected(case);
        case.node("n2").expires = Some(NOW);
        *case.removal("n2") = termination("n2", DisruptionReason::Expired, &[], None);
    });
}

#[test]
fn a_circle_of_affinities_is_found_whatever_its_length_and_keys() {
    let circle = |case: &mut Case| {
        pin(case);
        case.plan.placements.clear();
        case.plan.unschedulable.clear();
        case.plan.launches[0].pods = vec![pod_ref("fits"), pod_ref("new"), pod_ref("refused")];
        let follows = [
            ("fits", "web", "db", label::HOSTNAME),
            ("new", "db", "api", label::ZONE),
            ("refused", "api", "web", label::HOSTNAME),
        ];
        for (pod, app, other, key) in follows {
            case.reshape(pod, |shape| {
                shape.requests.set("cpu", 500);
                shape.labels.insert("app".into(), app.into());
                shape.pod_affinity.push(term_of(other, key));
            });
        }
    };
    for pod in ["fits", "new", "refused"] {
        rejected(&format!("pod ns/{pod} cannot run on launch launch: podAffinity"), circle);
    }
    accepted(|case| {
        circle(case);
        // One pod of the circle finds another one in its zone.
        add_node(case, |_| {});
        case.pod("stays").state = PodState::Bound(NodeName::from("n9"));
        case.reshape("stays", |shape| drop(shape.labels.insert("app".into(), "api".into())));
    });
}

#[test]
fn the_first_pod_is_one_after_which_all_others_can_be_bound() {
    // `fits` is in zone-a and `new` in zone-b, on nodes of the same architecture.
    let by = |case: &mut Case, fits: &str, new: &str| {
        pin(case);
        web(case, "fits", |shape| shape.pod_affinity.push(term(fits, false)));
        web(case, "new", |shape| shape.pod_affinity.push(term(new, false)));
    };
    accepted(|case| by(case, label::ARCH, label::ZONE));
    accepted(|case| by(case, label::ZONE, label::ARCH));
    rejected("podAffinity over topology.kubernetes.io/zone", |case| by(case, label::ZONE, label::ZONE));
    accepted(|case| {
        // `new` needs `fits` and cannot be the first, although `fits` selects it, too.
        pin(case);
        web(case, "fits", |shape| {
            shape.labels.insert("tier".into(), "front".into());
            shape.pod_affinity.push(term(label::HOSTNAME, false));
        });
        let mut to_front = term(label::ARCH, false);
        let match_labels = [("tier".to_owned(), "front".to_owned())].into();
        to_front.selector = Some(LabelSelector { match_labels, match_expressions: Vec::new() });
        web(case, "new", |shape| shape.pod_affinity.push(to_front));
    });
    accepted(|case| {
        // A pod that needs no others may come last.
        pin(case);
        web(case, "fits", |_| {});
        web(case, "new", |shape| shape.pod_affinity.push(term(label::ZONE, false)));
    });
}

#[test]
fn required_topology_spread_is_respected() {
    // Two pods in zone-a, none in zone-b.
    let two = |case: &mut Case, key, skew| {
        pin(case);
        web(case, "stays", |_| {});
        web(case, "fits", |shape| shape.topology_spread.push(spread(key, skew)));
    };
    rejected("pod ns/fits cannot run on n1: topology spread over topology.kubernetes.io/zone", |case| {
        two(case, label::ZONE, 1);
    });
    rejected("pod ns/fits cannot run on n1: topology spread over kubernetes.io/hostname", |case| {
        two(case, label::HOSTNAME, 1);
    });
    rejected("pod ns/fits cannot run on n1: topology spread over rack", |case| two(case, "rack", 1));
    accepted(|case| two(case, label::ZONE, 2));
    for selector in [None, Some(LabelSelector::default())] {
        accepted(|case| {
            two(case, label::ZONE, 1);
            let spreads = case.snapshot.shapes.iter_mut().flat_map(|shape| &mut shape.topology_spread);
            spreads.for_each(|spread| spread.selector.clone_from(&selector));
        });
    }
    accepted(|case| {
        two(case, label::ZONE, 1);
        web(case, "new", |_| {});
    });
}

#[test]
fn one_pod_must_match_all_affinity_terms() {
    let back = |shape: &mut PodShape| drop(shape.labels.insert("tier".into(), "back".into()));
    let two = |case: &mut Case| {
        let mut other = term(label::ZONE, false);
        let match_labels = [("tier".to_owned(), "back".to_owned())].into();
        other.selector = Some(LabelSelector { match_labels, match_expressions: Vec::new() });
        case.reshape("fits", |shape| shape.pod_affinity = vec![term(label::HOSTNAME, false), other]);
    };
    rejected("pod ns/fits cannot run on n1: podAffinity over kubernetes.io/hostname", |case| {
        web(case, "stays", |_| {});
        case.reshape("moves", back);
        two(case);
    });
    accepted(|case| {
        web(case, "stays", back);
        two(case);
    });
}

#[test]
fn topology_spread_only_counts_nodes_that_its_policies_include() {
    let spread = |honor_node_affinity, honor_node_taints| TopologySpread {
        topology_key: label::ZONE.into(),
        max_skew: 1,
        min_domains: None,
        required: true,
        selector: selector(),
        honor_node_affinity,
        honor_node_taints,
    };
    // Two pods in zone-a. zone-b has one empty node, which may be tainted or excluded by the pod's selector.
    let far = |case: &mut Case, spread: TopologySpread, tainted: bool, fixed: bool| {
        web(case, "stays", |_| {});
        web(case, "fits", |shape| {
            shape.topology_spread.push(spread);
            if fixed {
                shape.node_selector.insert(label::ZONE.into(), "zone-a".into());
            }
        });
        offerings(case).retain(|one| one.zone == "zone-a");
        let taint = Taint { key: "t".into(), value: String::new(), effect: TaintEffect::NoSchedule };
        add_node(case, |node| node.taints.extend(tainted.then_some(taint)));
    };
    let uneven = "pod ns/fits cannot run on n1: topology spread over topology.kubernetes.io/zone";
    rejected(uneven, |case| far(case, spread(true, true), false, false));
    accepted(|case| far(case, spread(true, false), false, true));
    rejected(uneven, |case| far(case, spread(false, false), false, true));
    rejected(uneven, |case| far(case, spread(true, false), true, false));
    accepted(|case| far(case, spread(true, true), true, false));
    rejected(uneven, |case| far(case, TopologySpread { min_domains: Some(3), ..spread(true, true) }, true, false));
    // Selected pods that the spread does not bind may arrive later.
    accepted(|case| {
        far(case, spread(true, true), true, false);
        web(case, "moves", |_| {});
    });
}

#[test]
fn topology_spread_only_counts_nodes_that_have_all_topology_keys() {
    // Two pods in zone-a.
    let keys = |case: &mut Case, other: &str| {
        web(case, "stays", |_| {});
        web(case, "fits", |shape| shape.topology_spread = vec![spread(label::ZONE, 1), spread(other, 9)]);
    };
    let in_zone_a = |case: &mut Case| {
        offerings(case).retain(|one| one.zone == "zone-a");
        keys(case, label::ARCH);
    };
    let uneven = "pod ns/fits cannot run on n1: topology spread over topology.kubernetes.io/zone";
    accepted(in_zone_a);
    rejected(uneven, |case| {
        in_zone_a(case);
        add_node(case, |_| {});
    });
    accepted(|case| {
        in_zone_a(case);
        add_node(case, |node| drop(node.labels.remove(label::ARCH)));
    });
    // The new node in zone-b has an instance type, whichever it is.
    rejected(uneven, |case| {
        pin(case);
        case.node("n1").labels.insert(label::INSTANCE_TYPE.into(), "a".into());
        keys(case, label::INSTANCE_TYPE);
    });
}

#[test]
fn topology_spread_counts_launches_whose_every_offering_is_selected() {
    const FAMILY: &str = "karpenter.k8s.aws/instance-family";
    // n1 has one selected pod in zone-a, and n9 has none in zone-b. The launch is in zone-b, as an m5 or an m6i.
    let families = |case: &mut Case, selected: &[&str]| {
        pin(case);
        for (kind, family) in case.catalog.instance_types.iter_mut().zip(["m5", "m6i"]) {
            kind.labels.insert(FAMILY.into(), family.into());
        }
        add_node(case, |_| {});
        for node in &mut case.snapshot.nodes {
            node.labels.insert(FAMILY.into(), "m5".into());
        }
        web(case, "stays", |_| {});
        let expressions = vec![requirement(FAMILY, Operator::In, selected, None)];
        let spread = TopologySpread {
            topology_key: label::ZONE.into(),
            max_skew: 1,
            min_domains: None,
            required: true,
            selector: selector(),
            honor_node_affinity: true,
            honor_node_taints: false,
        };
        web(case, "fits", |shape| {
            shape.required_node_affinity = vec![NodeSelectorTerm { expressions, fields: Vec::new() }];
            shape.topology_spread.push(spread);
        });
    };
    let uneven = "pod ns/fits cannot run on n1: topology spread over topology.kubernetes.io/zone";
    rejected(uneven, |case| families(case, &["m5", "m6i"]));
    accepted(|case| {
        families(case, &["m5", "m6i"]);
        web(case, "new", |_| {});
    });
    rejected(uneven, |case| {
        families(case, &["m5"]);
        web(case, "new", |_| {});
    });
    // Three pods in zone-b, one in zone-a.
    rejected("cannot run on launch launch: topology spread over topology.kubernetes.io/zone", |case| {
        families(case, &["m5", "m6i"]);
        let shape = case.pod("fits").shape.clone();
        for pod in ["new", "refused"] {
            case.pod(pod).shape = shape.clone();
        }
        case.plan.placements.clear();
        case.plan.unschedulable.clear();
        case.plan.launches[0].pods.extend([pod_ref("fits"), pod_ref("refused")]);
    });
}
