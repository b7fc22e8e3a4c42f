use super::*;
use k8s_openapi::api::core::v1::Node;
use plimsoll_api::Pod;

fn node(name: &str, uid: &str) -> Node {
    let mut node = Node::default();
    node.metadata.name = Some(name.to_owned());
    node.metadata.uid = Some(uid.to_owned());
    node
}

fn seen(view: &CachedObjects<Node>) -> Vec<String> {
    let text = |node: &Arc<Node>| {
        format!("{}{}", node.metadata.name.as_deref().unwrap(), node.metadata.uid.as_deref().unwrap())
    };
    view.state().iter().map(text).collect()
}

#[test]
fn relist_becomes_visible_in_one_step_and_objects_are_ordered() {
    let view = CachedObjects::default();
    let mut writer = Writer::new(view.clone());
    writer.take(Event::Init);
    writer.take(Event::InitApply(node("b", "1")));
    writer.take(Event::InitApply(node("a", "1")));
    assert_eq!(seen(&view), [""; 0], "half a list is none");
    writer.take(Event::InitDone);
    writer.take(Event::Apply(node("c", "1")));
    writer.take(Event::Apply(node("a", "2")));
    assert_eq!(seen(&view), ["a2", "b1", "c1"]);
    writer.take(Event::Delete(node("b", "1")));
    assert_eq!((seen(&view), view.get("b")), (vec!["a2".to_owned(), "c1".to_owned()], None));
    writer.take(Event::Init);
    writer.take(Event::InitApply(node("d", "1")));
    assert_eq!(seen(&view).len(), 2, "what was known stays until the new list is complete");
    writer.take(Event::InitDone);
    assert_eq!(seen(&view), ["d1"]);
}

fn with_provider(name: &str, id: &str) -> Node {
    let mut node = node(name, "1");
    node.spec = Some(k8s_openapi::api::core::v1::NodeSpec { provider_id: Some(id.to_owned()), ..Default::default() });
    node
}

#[test]
fn indices_follow_changes_deletions_and_relists() {
    let view = CachedObjects::<Node>::default();
    let mut writer = Writer::new(view.clone());
    let names =
        |id: &str| -> Vec<String> { view.group(id).iter().map(|node| node.metadata.name.clone().unwrap()).collect() };
    writer.take(Event::Apply(with_provider("b", "i-1")));
    writer.take(Event::Apply(with_provider("a", "i-1")));
    assert_eq!(names("i-1"), ["a", "b"]);
    let mut cursor = Cursor::default();
    assert_eq!(view.changed_groups(&mut cursor), None, "nothing was read");
    writer.take(Event::Apply(with_provider("a", "i-2")));
    let both = BTreeSet::from(["i-1".to_owned(), "i-2".to_owned()]);
    assert_eq!(view.changed_groups(&mut cursor), Some(both), "the group that it left and the one that it joined");
    assert_eq!(view.changed_groups(&mut cursor), Some(BTreeSet::new()));
    assert_eq!((names("i-1"), names("i-2")), (vec!["b".to_owned()], vec!["a".to_owned()]));
    writer.take(Event::Delete(with_provider("b", "i-1")));
    assert_eq!(names("i-1"), [""; 0]);
    assert_eq!(view.groups(), BTreeSet::from(["i-2".to_owned()]), "no group stays without objects");
    writer.take(Event::Init);
    writer.take(Event::InitApply(with_provider("c", "i-3")));
    assert_eq!(names("i-2"), ["a"]);
    writer.take(Event::InitDone);
    assert_eq!((names("i-2"), names("i-3")), (vec![], vec!["c".to_owned()]));
}

#[test]
fn of_values_with_the_same_hash_the_wanted_one_is_found() {
    let pod = |name: &str| Pod { metadata: node(name, name).metadata, ..Pod::default() };
    let view = CachedObjects::<Pod>::default();
    let mut writer = Writer::new(view.clone());
    ["a", "b"].into_iter().for_each(|name| writer.take(Event::Apply(pod(name))));
    view.cache.write().unique.insert((hash("b"), key(&pod("a"))));
    assert_eq!(view.unique("b").and_then(|found| found.metadata.name.clone()), Some("b".to_owned()));
}

/// Pods come and go all the time.
#[test]
fn nothing_is_kept_of_the_unique_value_of_an_object_that_is_gone() {
    let pod = |uid: &str| Pod { metadata: node("a", uid).metadata, ..Pod::default() };
    let view = CachedObjects::<Pod>::default();
    let mut writer = Writer::new(view.clone());
    ["1", "2"].into_iter().for_each(|uid| writer.take(Event::Apply(pod(uid))));
    assert_eq!((view.unique("1").is_none(), view.cache.read().unique.len()), (true, 1));
    writer.take(Event::Delete(pod("2")));
    assert!(view.unique("2").is_none() && view.cache.read().unique.is_empty());
}

#[test]
fn a_relist_keeps_the_cached_objects_that_have_not_changed() {
    let version = |name: &str, uid: &str, version: &str| {
        let mut node = node(name, uid);
        node.metadata.resource_version = Some(version.to_owned());
        node
    };
    let view = CachedObjects::default();
    let mut writer = Writer::new(view.clone());
    let mut list = |objects: [Node; 4]| {
        writer.take(Event::Init);
        objects.into_iter().for_each(|object| writer.take(Event::InitApply(object)));
        writer.take(Event::InitDone);
        view.state()
    };
    let unknown = node("d", "1");
    let before = list([version("a", "1", "1"), version("b", "1", "1"), version("c", "1", "1"), unknown.clone()]);
    let after = list([version("a", "1", "1"), version("b", "1", "2"), version("c", "2", "1"), unknown]);
    let kept: Vec<bool> = before.iter().zip(&after).map(|(before, after)| Arc::ptr_eq(before, after)).collect();
    assert_eq!(kept, [true, false, false, false], "changed, replaced, and without a version");
}

#[test]
fn each_reader_gets_every_change_once_and_all_objects_when_it_is_behind() {
    let view = CachedObjects::default();
    let mut writer = Writer::new(view.clone());
    let (mut cursor, mut late) = (Cursor::default(), Cursor::default());
    let read = |cursor: &mut Cursor| match view.changes(cursor) {
        Delta::All(objects) => ("all", objects.len(), 0),
        Delta::Changed(changed) => {
            ("changed", changed.len(), changed.iter().filter(|(_, object)| object.is_none()).count())
        }
    };
    writer.take(Event::Apply(node("a", "1")));
    assert_eq!((read(&mut cursor), read(&mut late)), (("all", 1, 0), ("all", 1, 0)), "nothing was read");
    assert_eq!(read(&mut cursor), ("changed", 0, 0));
    writer.take(Event::Apply(node("a", "2")));
    writer.take(Event::Apply(node("a", "3")));
    writer.take(Event::Apply(node("b", "1")));
    writer.take(Event::Delete(node("b", "1")));
    assert_eq!(read(&mut cursor), ("changed", 2, 1), "each object once, as it is now");
    writer.take(Event::Init);
    writer.take(Event::InitDone);
    assert_eq!((read(&mut cursor), read(&mut cursor)), (("all", 0, 0), ("changed", 0, 0)), "listed again");
    for number in 0..=LOG {
        writer.take(Event::Apply(node("c", &number.to_string())));
    }
    assert_eq!(read(&mut cursor), ("all", 1, 0), "the log has lost the first of the changes");
    writer.take(Event::Apply(node("d", "1")));
    assert_eq!((read(&mut cursor), read(&mut late)), (("changed", 1, 0), ("all", 2, 0)));
}
