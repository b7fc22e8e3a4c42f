use super::*;

fn settings() -> Arc<Settings> {
    Arc::new(Settings { kubernetes_version: "1.9".to_owned(), ..Settings::default() })
}

#[test]
fn configured_settings_take_precedence_and_the_version_never_decreases() {
    let configured = Settings { cluster_dns: Some("10.0.0.10".to_owned()), ..(*settings()).clone() };
    let current = Current::new(Arc::new(configured));
    let facts = |version: &str, dns: &str, cidr: &str| Facts {
        kubernetes_version: Some(version.to_owned()),
        cluster_dns: Some(dns.to_owned()),
        service_cidr: Some(cidr.to_owned()),
    };
    current.learn(facts("1.36", "10.9.9.9", "10.9.0.0/16"));
    current.learn(facts("1.35", "10.9.9.9", "10.9.0.0/16"));
    current.learn(Facts::default());
    let now = current.get();
    assert_eq!(now.kubernetes_version, "1.36");
    assert_eq!(now.cluster_dns.as_deref(), Some("10.0.0.10"));
    assert_eq!(now.service_cidr.as_deref(), Some("10.9.0.0/16"));
}

#[test]
fn version_parses_major_and_minor() {
    assert_eq!(minor("1", "36"), "1.36");
    assert_eq!(minor("1", "36+"), "1.36");
}
