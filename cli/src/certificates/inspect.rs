//! Parses certificates in PEM.

use rcgen::{KeyPair, PublicKeyData};
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::pem::Pem;
use x509_parser::prelude::X509Certificate;

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";

/// Properties that decide whether a certificate must be replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Certificate {
    /// Expiry in seconds since the epoch.
    pub(super) end: i64,
    /// DNS names.
    pub(super) names: Vec<String>,
    public_key: Vec<u8>,
    /// Identifier of its own key; only authorities have one.
    key_id: Option<Vec<u8>>,
    /// Identifier of the key that signed it.
    authority_key_id: Option<Vec<u8>>,
}

impl Certificate {
    /// Whether a PEM private key belongs to the certificate.
    pub(super) fn has_key(&self, pem: &str) -> bool {
        KeyPair::from_pem(pem).is_ok_and(|key| key.subject_public_key_info() == self.public_key)
    }

    /// Whether the key of `authority` signed the certificate, by key identifiers. The services verify the signature.
    pub(super) fn is_signed_by(&self, authority: &Certificate) -> bool {
        authority.key_id.is_some() && self.authority_key_id == authority.key_id
    }
}

/// The first certificate of a PEM file.
///
/// # Errors
/// If the file has no certificate, or not an X.509 certificate.
pub(super) fn first(pem: &str) -> Result<Certificate, String> {
    all(pem)?.into_iter().next().ok_or_else(|| "tls.crt: no certificate in PEM".to_owned())
}

/// All certificates of a PEM file, in order.
///
/// # Errors
/// If a certificate is not an X.509 certificate.
pub(super) fn all(pem: &str) -> Result<Vec<Certificate>, String> {
    blocks(pem).into_iter().map(|block| parse(&block)).collect()
}

/// All certificates of a PEM file with their PEM blocks, in order.
///
/// # Errors
/// If a certificate is not an X.509 certificate.
pub(super) fn with_pem(pem: &str) -> Result<Vec<(String, Certificate)>, String> {
    blocks(pem)
        .into_iter()
        .map(|block| {
            let certificate = parse(&block)?;
            Ok((block, certificate))
        })
        .collect()
}

fn blocks(pem: &str) -> Vec<String> {
    pem.split(BEGIN).skip(1).map(|rest| format!("{BEGIN}{rest}")).collect()
}

fn parse(pem: &str) -> Result<Certificate, String> {
    let problem = |error: &dyn std::fmt::Display| format!("a certificate: {error}");
    let (block, _) = Pem::read(std::io::Cursor::new(pem)).map_err(|error| problem(&error))?;
    let certificate = block.parse_x509().map_err(|error| problem(&error))?;
    Ok(Certificate {
        end: certificate.validity().not_after.timestamp(),
        names: names(&certificate),
        public_key: certificate.public_key().raw.to_vec(),
        key_id: key_id(&certificate),
        authority_key_id: authority_key_id(&certificate),
    })
}

fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(extension)) = certificate.subject_alternative_name() else { return Vec::new() };
    let name = |name: &GeneralName<'_>| if let GeneralName::DNSName(it) = name { Some((*it).to_owned()) } else { None };
    extension.value.general_names.iter().filter_map(name).collect()
}

fn key_id(certificate: &X509Certificate<'_>) -> Option<Vec<u8>> {
    certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
        _ => None,
    })
}

fn authority_key_id(certificate: &X509Certificate<'_>) -> Option<Vec<u8>> {
    certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::AuthorityKeyIdentifier(id) => id.key_identifier.as_ref().map(|id| id.0.to_vec()),
        _ => None,
    })
}
