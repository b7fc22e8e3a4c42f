//! Decides which Secrets must be written, without I/O.
//!
//! An authority is replaced in two runs. The first run adds the next authority to `ca.crt` of every Secret and signs
//! with the current one. Later runs sign with the next one, which all services trust by then.

use super::inspect::{self, Certificate};
use super::issue::{Authority, Pair, Validity};

/// Validity of an authority as a multiple of the validity of a certificate.
const AUTHORITY_FACTOR: u32 = 10;
const DAY: i64 = 24 * 60 * 60;

/// Content of a Secret. No `Debug`, because it contains a private key.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Content {
    /// `tls.crt` and `tls.key`.
    pub(super) pair: Pair,
    /// `ca.crt`: the trusted authorities; in the Secret of the authority, the current one first.
    pub(super) authorities: String,
}

/// Renewal policy.
#[derive(Debug, Clone, Copy)]
pub(super) struct Policy {
    /// Validity of a certificate in days.
    pub(super) days: u16,
    /// Days before expiry at which a certificate is replaced; less than `days`.
    pub(super) renew_before: u16,
    /// Seconds since the epoch.
    pub(super) now: i64,
}

/// A Secret that must be written, and the reason.
pub(super) struct Change {
    /// Index of the service; `None` for the authority.
    pub(super) service: Option<usize>,
    pub(super) content: Content,
    pub(super) why: &'static str,
}

/// Returns the changes, starting with the authority's.
///
/// # Errors
/// If the authority's Secret does not contain an authority from [`Authority::new`].
pub(super) fn plan(
    authority: Option<&Content>,
    services: &[(String, Option<Content>)],
    policy: Policy,
) -> Result<Vec<Change>, String> {
    let mut changes = Vec::new();
    let (signer, authorities) = match authority {
        Some(present) => {
            let (signer, next, authorities) = present_authority(present, policy)?;
            if let Some((content, why)) = next {
                changes.push(Change { service: None, content, why });
            }
            (signer, authorities)
        }
        None => {
            let signer = new_authority(policy)?;
            let authorities = signer.pair.cert.clone();
            let content = Content { pair: signer.pair.clone(), authorities: authorities.clone() };
            changes.push(Change { service: None, content, why: "new authority" });
            (signer, authorities)
        }
    };
    let trusted = inspect::all(&authorities)?;
    for (index, (name, present)) in services.iter().enumerate() {
        let due = present.as_ref().map_or(Some("new"), |content| due(content, name, &trusted, policy));
        let pair = match (due, present) {
            (None, Some(content)) => content.pair.clone(),
            _ => signer.sign(name, validity(policy, policy.days.into())?).map_err(|error| error.to_string())?,
        };
        let content = Content { pair, authorities: authorities.clone() };
        let why = due.unwrap_or("authorities changed");
        if present.as_ref() != Some(&content) {
            changes.push(Change { service: Some(index), content, why });
        }
    }
    Ok(changes)
}

/// The current signer, the authority's Secret if it must be written, and the trusted authorities.
type Present = (Authority, Option<(Content, &'static str)>, String);

fn present_authority(present: &Content, policy: Policy) -> Result<Present, String> {
    let certificate = inspect::first(&present.pair.cert)?;
    if !certificate.has_key(&present.pair.key) {
        return Err("tls.crt and tls.key do not belong together".to_owned());
    }
    if certificate.end <= policy.now {
        // No certificate of the authority is valid any more, so the new authority can sign at once.
        let signer = new_authority(policy)?;
        let authorities = signer.pair.cert.clone();
        let content = Content { pair: signer.pair.clone(), authorities: authorities.clone() };
        return Ok((signer, Some((content, "authority had expired")), authorities));
    }
    let signer = Authority::load(present.pair.clone()).map_err(|_may_quote_the_key| "tls.key: no private key")?;
    // Earlier authorities that are still valid.
    let former: String = inspect::with_pem(&present.authorities)?
        .into_iter()
        .filter(|(pem, certificate)| *pem != present.pair.cert && certificate.end > policy.now)
        .map(|(pem, _)| pem)
        .collect();
    // A certificate from the next renewal must expire before its authority.
    let needed = i64::from(u32::from(policy.days) + u32::from(policy.renew_before)) * DAY;
    if certificate.end - policy.now < needed {
        let next = new_authority(policy)?;
        let authorities = format!("{}{}{former}", next.pair.cert, present.pair.cert);
        let content = Content { pair: next.pair, authorities: authorities.clone() };
        return Ok((signer, Some((content, "authority ends soon")), authorities));
    }
    let authorities = format!("{}{former}", present.pair.cert);
    let changed = (authorities != present.authorities).then(|| {
        (Content { pair: present.pair.clone(), authorities: authorities.clone() }, "former authority expired")
    });
    Ok((signer, changed, authorities))
}

fn new_authority(policy: Policy) -> Result<Authority, String> {
    let days = u32::from(policy.days) * AUTHORITY_FACTOR;
    Authority::new(validity(policy, days)?).map_err(|error| error.to_string())
}

fn validity(policy: Policy, days: u32) -> Result<Validity, String> {
    let now = jiff::Timestamp::from_second(policy.now).map_err(|error| error.to_string())?;
    Validity::new(now.to_zoned(jiff::tz::TimeZone::UTC).date(), days)
}

/// Why a certificate must be replaced, if it must.
fn due(content: &Content, name: &str, trusted: &[Certificate], policy: Policy) -> Option<&'static str> {
    let Ok(certificate) = inspect::first(&content.pair.cert) else { return Some("no certificate") };
    if !certificate.has_key(&content.pair.key) {
        return Some("certificate and key do not belong together");
    }
    if certificate.names != [name] {
        return Some("other DNS name");
    }
    if !trusted.iter().any(|authority| certificate.is_signed_by(authority)) {
        return Some("other authority");
    }
    if certificate.end - policy.now < i64::from(policy.renew_before) * DAY {
        return Some("ends soon");
    }
    None
}

#[cfg(test)]
#[path = "renew/tests.rs"]
mod tests;
