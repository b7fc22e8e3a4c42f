//! Hints about unusual, invalid or incomplete input.

use crate::plan::{NOW, cluster, plan, table};
use crate::{deployment, fixture, plimsoll, plimsoll_with};

/// A Deployment whose pod has the label in its node selector.
fn selecting(label: &str) -> String {
    deployment("web", 1, "1", "1Gi").replace(
        "    spec:\n      containers",
        &format!("    spec:\n      nodeSelector: {{{label}}}\n      containers"),
    )
}

#[test]
fn misspelt_labels_and_amounts_bring_hints() {
    let pool = std::fs::read_to_string(fixture("pool.yaml")).unwrap();
    let hinted = |pool: &str, pods: &str, hint: &str| {
        let input = format!("{pool}{pods}");
        let run = plimsoll_with(&["plan", "-f", "-", "--catalog", &fixture("catalog.json"), "--now", NOW], &input);
        assert!(run.status == 0 && run.stderr.contains(hint), "{hint:?}: {run:?}");
    };
    let web = deployment("web", 1, "1", "1Gi");
    hinted(
        &pool.replace("values: [on-demand]", "values: [spot, ondemand]"),
        &web,
        "NodePool default: no offering has karpenter.sh/capacity-type ondemand; did you mean on-demand?",
    );
    hinted(
        &pool.replace("key: kubernetes.io/arch,", "key: instance-category,").replace("[amd64]", "[m]"),
        &web,
        "NodePool default: requirement instance-category is no known label; did you mean karpenter.k8s.aws/instance-category?",
    );
    hinted(
        &pool,
        &selecting("kubernetes.io/arch: arm46"),
        "Pod default/web-0: no offering has kubernetes.io/arch arm46; did you mean",
    );
    hinted(
        &pool,
        &selecting("karpenter.k8s.aws/instance-categry: m"),
        "Pod default/web-0: label karpenter.k8s.aws/instance-categry is unknown; did you mean karpenter.k8s.aws/instance-category?",
    );
    hinted(
        &pool,
        &deployment("web", 1, "1", "512m"),
        "Pod default/web-0 requests 1 byte of memory; did you mean Mi? The suffix m stands for a thousandth",
    );
    let restricted = pool.replace("key: karpenter.sh/capacity-type,", "key: karpenter.sh/capacity-typ,");
    plimsoll_with(&["plan", "-f", "-"], &restricted)
        .refused(&["spec.template.spec.requirements[1].key: label karpenter.sh/capacity-typ is unknown; did you mean karpenter.sh/capacity-type?"]);
    let none = pool.replace("values: [on-demand]", "values: [ondemand]");
    plimsoll_with(&["plan", "-f", "-"], &none).refused(&["did you mean on-demand?"]);
}

/// Such a limit limits nothing.
#[test]
fn misspelt_limits_bring_hints() {
    let pool = std::fs::read_to_string(fixture("pool.yaml")).unwrap();
    let hints = |input: &str| {
        let run = plimsoll_with(&["plan", "-f", "-", "--catalog", &fixture("catalog.json"), "--now", NOW], input);
        assert_eq!(run.status, 0, "{run:?}");
        run.stderr
    };
    let limited =
        |limits: &str| pool.replace("spec:\n  template", &format!("spec:\n  limits: {{{limits}}}\n  template"));
    let hint = |place: &str, name: &str, meant: &str| {
        format!("hint: {place} has {name}, which no instance type has; did you mean {meant}?\n")
    };
    let place = "NodePool default: spec.limits";
    let expected = hint(place, "Memory", "memory") + &hint(place, "cpus", "cpu");
    assert_eq!(hints(&limited("cpus: 10, Memory: 20Gi")), expected);
    assert_eq!(hints(&limited("node: 3")), hint(place, "node", "nodes"));
    // A device plugin may add any resource.
    assert_eq!(hints(&limited("cpu: 10, nodes: 3, plimsoll.dev/usd-per-hour: 2, example.com/device: 4")), "");
    assert_eq!(hints(&limited("gpu: 1, nvidia.com/gpucores: 2, vpc.amazonaws.com/efa: 3")), "");
    // What a pod requests is known.
    let pod = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: a}\n\
        spec: {containers: [{name: app, resources: {limits: {example.com/device: 1}}}]}\n";
    let limited = limited("example.com/Device: 4");
    let expected = hint(place, "example.com/Device", "example.com/device");
    assert_eq!((hints(&limited), hints(&format!("{limited}{pod}"))), (String::new(), expected));
    let quota = "---\napiVersion: autoscaling.x-k8s.io/v1beta1\nkind: CapacityQuota\nmetadata: {name: all}\n\
        spec: {limits: {resources: {cpus: 2}}}\n";
    let expected = hint("CapacityQuota all: spec.limits.resources", "cpus", "cpu");
    assert_eq!(hints(&format!("{pool}{quota}")), expected);
}

#[test]
fn annotations_that_do_not_exist_bring_hints() {
    let pool = std::fs::read_to_string(fixture("pool.yaml")).unwrap();
    let hints = |annotations: &str| {
        let metadata = format!("{{name: default, annotations: {{{annotations}}}}}\nspec:\n  template");
        let pool = pool.replace("{name: default}\nspec:\n  template", &metadata);
        let run = plimsoll_with(&["plan", "-f", "-", "--catalog", &fixture("catalog.json"), "--now", NOW], &pool);
        assert_eq!(run.status, 0, "{run:?}");
        run.stderr
    };
    assert_eq!(
        hints("plimsoll.dev/ondemand-percentage: \"30\", plimsoll.dev/other: a"),
        "hint: NodePool default: the annotation plimsoll.dev/ondemand-percentage has no effect; did you mean \
         plimsoll.dev/on-demand-percentage?\n\
         hint: NodePool default: the annotation plimsoll.dev/other has no effect\n"
    );
    assert_eq!(hints("plimsoll.dev/on-demand-percentage: \"30\", example.com/other: a"), "");
    let many: Vec<String> = (0..11).map(|number| format!("plimsoll.dev/other-{number}: a")).collect();
    assert_eq!(hints(&many.join(", ")).lines().count(), 10);
    let metadata = "{annotations: {plimsoll.dev/rollout-paused: \"true\", plimsoll.dev/other: a}}";
    let pool = pool.replace("template:", &format!("template:\n    metadata: {metadata}"));
    let run = plimsoll_with(&["plan", "-f", "-", "--catalog", &fixture("catalog.json"), "--now", NOW], &pool);
    let hint = "hint: NodePool default: the annotation plimsoll.dev/";
    let expected = format!(
        "{hint}other has no effect in spec.template\n\
         {hint}rollout-paused has no effect in spec.template; it belongs to metadata.annotations\n"
    );
    assert_eq!((run.status, run.stderr), (0, expected));
}

#[test]
fn the_name_of_a_node_is_not_a_misspelt_label() {
    let run = table(&selecting("kubernetes.io/hostname: node-1"), &[]);
    assert_eq!((run.status, run.stderr.as_str()), (0, ""));
    assert!(run.stdout.contains("kubernetes.io/hostname In [node-1], which names a node"), "{}", run.stdout);
}

#[test]
fn advice_about_a_label_can_be_followed() {
    let number = "{key: size, operator: Exists}, {key: size, operator: Gt, values: [\"5\"]}";
    let none = "no node of NodePool default has the label ";
    for (requirements, label, expected) in [
        (
            "",
            "node-role.kubernetes.io/worker: \"\"",
            "node-role.kubernetes.io/worker: add node-role.kubernetes.io/worker: \"\" to spec.template.metadata.labels of the \
             NodePool, or remove it from the pod",
        ),
        (
            "",
            "karpenter.sh/do-not-consolidate: \"true\"",
            "karpenter.sh/do-not-consolidate, which is reserved: remove it from the pod",
        ),
        (
            "",
            "karpenter.sh/provisioner-name: default",
            "karpenter.sh/provisioner-name; did you mean karpenter.sh/nodepool?",
        ),
        (
            "",
            "eks.amazonaws.com/capacityType: SPOT",
            "eks.amazonaws.com/capacityType; did you mean karpenter.sh/capacity-type?",
        ),
        (
            "{key: node.example, operator: DoesNotExist}",
            "node.example: a",
            "node.example, since the NodePool requires node.example DoesNotExist: remove it from the pod",
        ),
        (
            number,
            "size: \"3\"",
            "no offering of the NodePool satisfies size In [3], since the NodePool requires size Exists and size Gt [5]",
        ),
    ] {
        let pool = std::fs::read_to_string(fixture("pool.yaml")).unwrap();
        let block = "      requirements:\n        - {key: kubernetes.io/arch, operator: In, values: [amd64]}\n        - {key: \
            karpenter.sh/capacity-type, operator: In, values: [on-demand]}\n";
        assert!(pool.contains(block), "{pool}");
        let input = pool.replace(block, &format!("      requirements: [{requirements}]\n")) + &selecting(label);
        let arguments = ["plan", "-f", "-", "--catalog", &fixture("catalog.json"), "-o", "json", "--now", NOW];
        let plan = plimsoll_with(&arguments, &input).json();
        let message = plan["unschedulable"][0]["reasons"][0]["message"].as_str().unwrap();
        let expected = if requirements == number { expected.to_owned() } else { format!("{none}{expected}") };
        assert_eq!(message, expected);
    }
}

#[test]
fn a_region_beside_a_catalog_file_brings_a_hint() {
    let pool = std::fs::read_to_string(fixture("pool.yaml")).unwrap();
    let elsewhere = pool.replace(
        "key: kubernetes.io/arch, operator: In, values: [amd64]",
        "key: topology.kubernetes.io/zone, operator: In, values: [us-west-2a]",
    );
    let input = elsewhere + &deployment("web", 1, "1", "1Gi");
    let run = plimsoll_with(
        &["plan", "-f", "-", "--catalog", &fixture("catalog.json"), "--region", "us-west-2", "--now", NOW],
        &input,
    );
    for hint in [
        "has no offering in us-west-2a; try --region us-west-2 without --catalog",
        "--region us-west-2 has no effect beside --catalog",
    ] {
        assert!(run.status == 0 && run.stderr.contains(hint), "{hint:?}: {run:?}");
    }
}

#[test]
fn a_selector_that_misses_its_own_pods_is_bad_input() {
    let broken = deployment("web", 1, "1", "1Gi").replace("matchLabels: {app: web}", "matchLabels: {app: shop}");
    plimsoll_with(&["plan", "-f", "-"], &broken).refused(&[
        "Deployment default/web: spec.selector.matchLabels: app: shop does not match spec.template.metadata.labels, which has app: web",
    ]);
}

#[test]
fn what_is_not_in_the_input_is_said_to_be_missing_there() {
    let pod = deployment("db", 1, "1", "1Gi").replace(
        "    spec:\n      containers",
        "    spec:\n      volumes: [{name: d, persistentVolumeClaim: {claimName: data}}]\n      containers",
    );
    let reasons = plan(&pod)["unschedulable"][0]["reasons"][0].clone();
    assert_eq!(reasons["code"], "VolumeProblem");
    assert!(
        reasons["message"].as_str().unwrap().ends_with("\"data\" not found in the input; add pvc, pv and sc to it"),
        "{reasons}"
    );
}

#[test]
fn a_class_of_pods_that_is_missing_brings_a_hint() {
    let web = deployment("web", 1, "1", "1Gi").replace(
        "    spec:\n      containers",
        "    spec:\n      priorityClassName: high\n      runtimeClassName: gvisor\n      containers",
    );
    let run = table(&web, &[]);
    for hint in ["hint: PriorityClass high is not in the input: ", "hint: RuntimeClass gvisor is not in the input: "] {
        assert!(run.status == 0 && run.stderr.contains(hint), "{hint:?}: {run:?}");
    }
}

#[test]
fn a_missing_node_class_is_named_once() {
    let pool = std::fs::read_to_string(fixture("pool.yaml")).unwrap();
    let pool = pool.split("---").next().unwrap().to_owned() + &deployment("web", 1, "1", "1Gi");
    let run = plimsoll_with(&["plan", "-f", "-"], &pool);
    assert_eq!(run.stdout.matches("NodeClassNotFound").count(), 1, "{}", run.stdout);
}

#[test]
fn a_pool_of_another_provider_is_named_once() {
    let pool = std::fs::read_to_string(fixture("pool.yaml")).unwrap();
    let other = pool.split("---").next().unwrap().replace("name: default}\nspec", "name: other}\nspec");
    let other =
        other.replace("group: karpenter.k8s.aws, kind: EC2NodeClass", "group: karpenter.sh.example, kind: Bare");
    let run = table(&format!("{other}{}", deployment("web", 1, "1", "1Gi")), &[]);
    let hint = "NodePool other belongs to another provider, as its nodeClassRef names Bare of karpenter.sh.example";
    assert_eq!((run.status, run.stderr.matches(hint).count()), (0, 1), "{run:?}");
    assert!(!run.stdout.contains("NodeClassNotFound"), "{}", run.stdout);
}

#[test]
fn a_variable_that_is_not_replaced_brings_a_hint() {
    let pool = std::fs::read_to_string(fixture("pool.yaml")).unwrap();
    let literal = pool.replace("role: node", "role: \"KarpenterNodeRole-${CLUSTER_NAME}\"");
    let run = plimsoll_with(&["plan", "-f", "-"], &literal);
    let hint = "hint: EC2NodeClass default: spec.role is KarpenterNodeRole-${CLUSTER_NAME}, with a variable that is not replaced";
    assert!(run.status == 0 && run.stderr.starts_with(hint), "{run:?}");
    assert_eq!(plimsoll_with(&["plan", "-f", "-"], &pool).stderr, "");
}

/// The actuator keeps such a class from becoming ready.
#[test]
fn a_node_class_that_ec2_refuses_brings_a_hint() {
    let pool = std::fs::read_to_string(fixture("pool.yaml")).unwrap();
    let tags: Vec<String> = (0..41).map(|number| format!("tag-{number}: a")).collect();
    let refused = pool.replace("role: node", &format!("role: node\n  tags: {{{}}}", tags.join(", ")));
    let run = plimsoll_with(&["plan", "-f", "-"], &refused);
    let hint =
        "hint: EC2NodeClass default is not ready in a cluster: EC2 refuses spec.tags: 41 tags and 10 of the autoscaler";
    assert!(run.status == 0 && run.stderr.starts_with(hint), "{run:?}");
    let refused = pool.replace("role: node", "role: node\n  tags: {\"aws:x\": a}");
    let run = plimsoll_with(&["plan", "-f", "-"], &refused);
    assert!(run.status == 0 && run.stderr.contains("EC2 refuses spec.tags[aws:x]: "), "{run:?}");
}

#[test]
fn kinds_before_v1_bring_a_hint() {
    let run = plimsoll_with(
        &["plan", "-f", "-"],
        "apiVersion: karpenter.sh/v1alpha5\nkind: Provisioner\nmetadata: {name: a}\n",
    );
    let expected = "ignored: karpenter.sh/v1alpha5 Provisioner (1)\n\
        hint: karpenter.sh/v1alpha5 Provisioner is ignored; Karpenter v1 has NodePool instead\n";
    assert_eq!((run.status, run.stderr.as_str()), (0, expected));
    for kind in ["karpenter.k8s.aws/v1 NodePool", "karpenter.sh/v1 nodepool"] {
        let (version, name) = kind.split_once(' ').unwrap();
        let object = format!("apiVersion: {version}\nkind: {name}\nmetadata: {{name: a}}\n");
        let run = plimsoll_with(&["plan", "-f", "-"], &object);
        let expected = format!("ignored: {kind} (1)\nhint: {kind} is ignored; NodePool is karpenter.sh/v1\n");
        assert_eq!((run.status, run.stderr), (0, expected));
    }
}

#[test]
fn fields_of_a_newer_server_bring_a_hint() {
    let pod = |name: &str, uid: &str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}{uid}}}\n\
             spec: {{containers: [{{name: app, imagined: 1}}]}}\n"
        )
    };
    let run = plimsoll_with(&["plan", "-f", "-"], &(pod("a", ", uid: u") + &pod("b", ", uid: v")));
    let expected = "hint: Pod spec.containers[].imagined is ignored, since no such field is known (2)\n";
    assert!(run.status == 0 && run.stderr.contains(expected), "{run:?}");
    plimsoll_with(&["plan", "-f", "-"], &pod("a", "")).refused(&["Pod default/a: spec.containers[0].imagined"]);
}

#[test]
fn nodes_of_another_region_bring_a_hint() {
    let cluster = cluster().replace("kubernetes.io/os: linux", "topology.kubernetes.io/region: eu-west-1");
    let run = table(&cluster, &[]);
    assert!(
        run.stderr.contains("nodes are in eu-west-1, the catalog is of region test-1")
            && run.stderr.contains("--region eu-west-1"),
        "{run:?}"
    );
}

#[test]
fn an_empty_file_is_no_fault() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in
        [("empty.yaml", ""), ("blank.json", " \n"), ("dashes.yaml", "---\n---\n"), ("null.json", "null")]
    {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let path = folder.path().to_str().unwrap();
    let run = plimsoll(&["plan", "-f", path]);
    assert_eq!((run.status, run.stderr), (0, format!("hint: no objects in {path}\n")));
    std::fs::copy(fixture("pool.yaml"), folder.path().join("pool.yaml")).unwrap();
    let run = plimsoll(&["plan", "-f", path]);
    assert_eq!((run.status, run.stderr.as_str()), (0, ""), "a file beside empty ones has objects");
}

#[test]
fn a_path_without_objects_brings_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let run = plimsoll_with(&["plan", "-f", path, "-f", "-", "-f", &fixture("pool.yaml")], "");
    let hints = format!("hint: no objects in {path}\nhint: no objects in -\n");
    assert_eq!((run.status, run.stderr), (0, hints));
    let list = "apiVersion: v1\nkind: List\nitems: []\n";
    let run = plimsoll_with(&["plan", "-f", "-"], list);
    assert_eq!((run.status, run.stderr.as_str()), (0, "hint: no objects in -\n"));
}

/// A weight is the user's choice; its cost is reported if it is high.
#[test]
fn weights_that_cost_much_bring_a_hint() {
    let pool = std::fs::read_to_string(fixture("pool.yaml")).unwrap();
    let (pool, class) = pool.split_once("---").unwrap();
    // The pool with the higher weight has only nodes of 0.36 USD per hour; a pod of 1 CPU fits on a node of 0.1.
    let large = "requirements:\n        - {key: node.kubernetes.io/instance-type, operator: In, values: [large]}";
    let other = pool.replace("{name: default}", "{name: heavy}").replace("requirements:", large);
    let run = |first: &str| {
        let input = format!("{first}---\n{pool}---{class}{}", deployment("web", 1, "1", "1Gi"));
        plimsoll_with(&["plan", "-f", "-", "--catalog", &fixture("catalog.json"), "--now", NOW], &input)
    };
    let dear = run(&other.replace("spec:\n  template", "spec:\n  weight: 10\n  template"));
    let hint = "hint: the weights of the NodePools cost 0.26 USD per hour: with equal weights, the launches would cost 0.1 instead of 0.36\n";
    assert!(dear.status == 0 && dear.stdout.contains("heavy") && dear.stderr.contains(hint), "{dear:?}");
    let bound = "lower bound for the same pods: 0.1 (the bound ignores pod affinity, limits, weights and minValues, and topology \
                 over zones except for required spreads of workloads all of whose pods get new nodes)";
    assert!(dear.stdout.contains(bound), "{dear:?}");
    let alike = run(&other);
    assert!(alike.status == 0 && !alike.stderr.contains("weights"), "{alike:?}");
}

#[test]
fn a_selector_that_contradicts_the_pods_own_volume_brings_a_hint() {
    let pool = std::fs::read_to_string(fixture("pool.yaml")).unwrap();
    let pod = |zone: &str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: db}}\nspec:\n  nodeSelector: {{topology.kubernetes.io/zone: {zone}}}\n  \
             containers: [{{name: app}}]\n  volumes: [{{name: d, persistentVolumeClaim: {{claimName: data}}}}]\n"
        )
    };
    let volume = "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\n\
        spec: {volumeName: pv, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\nstatus: {phase: Bound}\n\
        ---\napiVersion: v1\nkind: PersistentVolume\nmetadata: {name: pv}\nspec:\n  capacity: {storage: 1Gi}\n  \
        accessModes: [ReadWriteOnce]\n  csi: {driver: ebs.csi.aws.com, volumeHandle: vol-1}\n  nodeAffinity: {required: \
        {nodeSelectorTerms: [{matchExpressions: [{key: topology.kubernetes.io/zone, operator: In, values: [test-1a]}]}]}}\n";
    let hints = |zone: &str| {
        let input = format!("{pool}{}{volume}", pod(zone));
        plimsoll_with(&["plan", "-f", "-", "--catalog", &fixture("catalog.json"), "--now", NOW], &input).stderr
    };
    let expected = "Pod default/db: its node selector asks for topology.kubernetes.io/zone test-1b, \
        but a volume of it can be attached only in test-1a";
    assert!(hints("test-1b").contains(expected), "{}", hints("test-1b"));
    assert!(!hints("test-1a").contains("a volume of it"), "{}", hints("test-1a"));
}
