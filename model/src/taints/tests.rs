use super::*;

fn a_taint(key: &str, value: &str, effect: TaintEffect) -> Taint {
    Taint { key: key.to_owned(), value: value.to_owned(), effect }
}

fn toleration(key: &str, operator: TolerationOperator, value: &str, effect: Option<TaintEffect>) -> Toleration {
    Toleration { key: key.to_owned(), operator, value: value.to_owned(), effect }
}

#[test]
fn tolerations_match_as_in_kube_scheduler() {
    use TaintEffect::{NoExecute, NoSchedule};
    use TolerationOperator::{Equal, Exists};
    let gpu = a_taint("gpu", "yes", NoSchedule);
    let table = [
        (toleration("gpu", Equal, "yes", Some(NoSchedule)), true),
        (toleration("gpu", Equal, "yes", None), true),
        (toleration("gpu", Equal, "no", None), false),
        (toleration("gpu", Equal, "yes", Some(NoExecute)), false),
        (toleration("cpu", Equal, "yes", None), false),
        (toleration("gpu", Exists, "", None), true),
        (toleration("cpu", Exists, "", None), false),
        (toleration("", Exists, "", None), true),
        (toleration("", Exists, "", Some(NoExecute)), false),
        (toleration("", Equal, "yes", None), false),
    ];
    for (toleration, expected) in table {
        assert_eq!(toleration.tolerates(&gpu), expected, "{toleration:?}");
    }
}

#[test]
fn the_first_untolerated_taint_is_returned() {
    let taints = [
        a_taint("gpu", "", TaintEffect::NoSchedule),
        a_taint("soft", "", TaintEffect::PreferNoSchedule),
        a_taint("hard", "", TaintEffect::NoExecute),
    ];
    let gpu = toleration("gpu", TolerationOperator::Exists, "", None);
    let all = toleration("", TolerationOperator::Exists, "", None);
    assert_eq!(untolerated(&taints, &[]), Some(&taints[0]));
    assert_eq!(untolerated(&taints, std::slice::from_ref(&gpu)), Some(&taints[1]));
    assert_eq!(untolerated(&taints, &[gpu, all]), None);
    assert_eq!(untolerated(&[], &[]), None);
}

#[test]
fn ephemeral_taints_depend_on_key_and_effect() {
    use TaintEffect::{NoExecute, NoSchedule, PreferNoSchedule};
    let table = [
        (taint::NOT_READY, NoSchedule, true),
        (taint::NOT_READY, NoExecute, true),
        (taint::NOT_READY, PreferNoSchedule, false),
        (taint::UNREACHABLE, NoSchedule, true),
        (taint::UNREACHABLE, NoExecute, false),
        (taint::UNINITIALIZED, NoSchedule, true),
        (taint::UNREGISTERED, NoExecute, true),
        (taint::UNREGISTERED, NoSchedule, false),
        ("readiness.k8s.io/network", NoSchedule, true),
        (taint::DISRUPTED, NoSchedule, false),
        ("example.com/startup", NoSchedule, false),
    ];
    for (key, effect, expected) in table {
        assert_eq!(a_taint(key, "", effect).is_ephemeral(), expected, "{key} {effect:?}");
    }
}
