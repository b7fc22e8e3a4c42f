use super::*;

#[test]
fn a_stateful_set_makes_its_claims_where_there_are_none() {
    let text = "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: db, namespace: shop}\nspec:\n  replicas: 2\n  \
        selector: {matchLabels: {app: db}}\n  \
        template: {metadata: {labels: {app: db}}, spec: {containers: [{name: app}]}}\n  \
        volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce]}}]\n---\n\
        apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data-db-0, namespace: shop}\n\
        spec: {volumeName: v, accessModes: [ReadWriteOnce]}\n";
    let manifests = input(text).unwrap();
    let claims = manifests.objects.persistent_volume_claims.iter();
    let claims: Vec<(&str, bool)> = claims
        .map(|it| (it.metadata.name.as_deref().unwrap(), it.spec.as_ref().unwrap().volume_name.is_some()))
        .collect();
    assert_eq!(claims, [("data-db-0", true), ("data-db-1", false)]);
}

#[test]
fn a_large_workload_is_one_template_and_its_claims_make_pods_of_it() {
    let large = input(&DEPLOYMENT.replace("replicas: 2", "replicas: 100000")).unwrap().objects;
    assert_eq!((large.pods.len(), large.replicas.len(), large.replicas[0].len()), (0, 1, 100_000));
    let claims =
        "\n  volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce]}}]\n  replicas: 2";
    let set = DEPLOYMENT.replace("Deployment", "StatefulSet").replace("\n  replicas: 2", claims);
    let set = input(&set).unwrap().objects;
    assert_eq!((set.pods.len(), set.replicas.len(), set.persistent_volume_claims.len()), (2, 0, 2));
}

#[test]
fn too_many_pods_are_an_error_of_the_workload_that_makes_them() {
    let half = |name: &str| DEPLOYMENT.replace("name: web}", &format!("name: {name}}}")).replace("2\n", "500001\n");
    assert_eq!(
        error(&format!("{}---\n{}", half("one"), half("two"))),
        "-: document 2: Deployment default/two: spec.replicas: makes more than 1000000 pods"
    );
}

#[test]
fn the_pods_and_claims_of_a_stateful_set_are_numbered_from_its_first_ordinal() {
    let set = |more: &str| {
        let rest = format!("\n  ordinals: {{start: 5}}\n  replicas: 3{more}");
        DEPLOYMENT.replace("Deployment", "StatefulSet").replace("\n  replicas: 2", &rest)
    };
    assert_eq!(pod_names(&input(&set("")).unwrap()), ["web-5", "web-6", "web-7"]);
    let present = owned("web-6", "apiVersion: apps/v1, kind: StatefulSet, name: web", "");
    assert_eq!(pod_names(&input(&(set("") + &present)).unwrap()), ["web-6", "web-5", "web-7"]);
    let claims = "\n  volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce]}}]";
    let manifests = input(&set(claims)).unwrap();
    let claims = manifests.objects.persistent_volume_claims.iter();
    let claims: Vec<&str> = claims.filter_map(|claim| claim.metadata.name.as_deref()).collect();
    assert_eq!(claims, ["data-web-5", "data-web-6", "data-web-7"]);
    let negative = error(&set("").replace("start: 5", "start: -1"));
    assert_eq!(negative, "-: document 1: StatefulSet default/web: spec.ordinals.start: must not be negative");
}
