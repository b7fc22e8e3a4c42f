//! A certificate authority and the certificates that it signs.

use jiff::ToSpan;
use jiff::civil::Date;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, Error, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};

/// Validity period of a certificate.
#[derive(Debug, Clone, Copy)]
pub(super) struct Validity {
    from: Date,
    until: Date,
}

impl Validity {
    /// From the day before `today`, because clocks differ, for `days` days.
    pub(super) fn new(today: Date, days: u32) -> Result<Self, String> {
        let from = today.checked_sub(1.day()).map_err(|error| error.to_string())?;
        let until = today.checked_add(i64::from(days).days()).map_err(|error| error.to_string())?;
        Ok(Self { from, until })
    }

    fn put(self, params: &mut CertificateParams) {
        let time =
            |date: Date| date_time_ymd(i32::from(date.year()), date.month().unsigned_abs(), date.day().unsigned_abs());
        params.not_before = time(self.from);
        params.not_after = time(self.until);
    }
}

/// A certificate and its key in PEM. No `Debug`, because it contains a private key.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) cert: String,
    pub(super) key: String,
}

/// A certificate authority and a certificate for each service.
pub(super) struct Issued {
    pub(super) authority: Pair,
    /// By service.
    pub(super) services: Vec<(String, Pair)>,
}

/// Creates a certificate authority and a certificate for each service with its DNS name.
pub(super) fn issue(names: &[(&str, String)], validity: Validity) -> Result<Issued, Error> {
    let authority = Authority::new(validity)?;
    let services = names.iter().map(|(service, name)| Ok(((*service).to_owned(), authority.sign(name, validity)?)));
    Ok(Issued { services: services.collect::<Result<_, Error>>()?, authority: authority.pair })
}

/// Key and certificate for signing. No `Debug`, because it contains a private key.
pub(super) struct Authority {
    pub(super) pair: Pair,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Creates a new authority.
    pub(super) fn new(validity: Validity) -> Result<Self, Error> {
        let key = KeyPair::generate()?;
        let mut params = authority_params()?;
        validity.put(&mut params);
        let pair = Pair { cert: params.self_signed(&key)?.pem(), key: key.serialize_pem() };
        Ok(Self { pair, issuer: Issuer::new(params, key) })
    }

    /// Loads an authority from [`Authority::new`]. The caller checks that certificate and key match.
    pub(super) fn load(pair: Pair) -> Result<Self, Error> {
        let key = KeyPair::from_pem(&pair.key)?;
        Ok(Self { issuer: Issuer::new(authority_params()?, key), pair })
    }

    /// Creates a certificate for a DNS name.
    pub(super) fn sign(&self, name: &str, validity: Validity) -> Result<Pair, Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(vec![name.to_owned()])?;
        params.distinguished_name = common_name(name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        // Each service is both a client and a server.
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        validity.put(&mut params);
        Ok(Pair { cert: params.signed_by(&key, &self.issuer)?.pem(), key: key.serialize_pem() })
    }
}

/// Common parameters of all authorities, so that one can be loaded without parsing its certificate.
fn authority_params() -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = common_name("plimsoll-ca");
    // The authority signs certificates of services, never of other authorities.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

/// A common name has at most 64 characters in X.509; verification uses the DNS name.
fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name.chars().take(64).collect::<String>());
    distinguished
}
