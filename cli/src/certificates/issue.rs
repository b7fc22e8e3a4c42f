//! An authority of its own, and what it signs.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, Error, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};

/// From a day before it is made, since clocks differ, to the end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Validity {
    from: jiff::civil::Date,
    until: jiff::civil::Date,
}

impl Validity {
    pub(super) fn new(today: jiff::civil::Date, days: u16) -> Result<Self, String> {
        use jiff::ToSpan;
        let from = today.checked_sub(1.day()).map_err(|error| error.to_string())?;
        let until = today.checked_add(i64::from(days).days()).map_err(|error| error.to_string())?;
        Ok(Self { from, until })
    }

    fn put(self, params: &mut CertificateParams) {
        let time = |date: jiff::civil::Date| {
            date_time_ymd(i32::from(date.year()), date.month().unsigned_abs(), date.day().unsigned_abs())
        };
        params.not_before = time(self.from);
        params.not_after = time(self.until);
    }
}

/// A certificate and its key, PEM. No `Debug`: it holds a private key.
pub(super) struct Pair {
    pub(super) cert: String,
    pub(super) key: String,
}

/// What was made.
pub(super) struct Issued {
    pub(super) authority: Pair,
    /// By service.
    pub(super) services: Vec<(String, Pair)>,
}

/// Makes an authority and a certificate for each service, under its one DNS name.
pub(super) fn issue(names: &[(&str, String)], validity: Validity) -> Result<Issued, Error> {
    let authority_key = KeyPair::generate()?;
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = common_name("plimsoll-ca");
    // It signs for services, never for other authorities.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    validity.put(&mut params);
    let cert = params.self_signed(&authority_key)?.pem();
    let key = authority_key.serialize_pem();
    let issuer = Issuer::new(params, authority_key);
    let services = names.iter().map(|(service, name)| Ok(((*service).to_owned(), leaf(name, validity, &issuer)?)));
    Ok(Issued { services: services.collect::<Result<_, Error>>()?, authority: Pair { cert, key } })
}

fn leaf(name: &str, validity: Validity, issuer: &Issuer<'_, KeyPair>) -> Result<Pair, Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    params.distinguished_name = common_name(name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    // Each service both calls and is called.
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    validity.put(&mut params);
    Ok(Pair { cert: params.signed_by(&key, issuer)?.pem(), key: key.serialize_pem() })
}

/// X.509 takes at most 64 letters for a common name; the DNS name is what counts.
fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name.chars().take(64).collect::<String>());
    distinguished
}
