//! Volumes of a pod as folders: Secrets, ConfigMaps, and the token of its ServiceAccount.

use crate::harness::confine::Mount;
use crate::harness::kubectl::Kubectl;
use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::{ConfigMap, KeyToPath, Pod, Secret, Volume, VolumeProjection};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Longer than any run.
const TOKEN: &str = "--duration=1h";

/// Files of a volume by name.
type Files = BTreeMap<String, Vec<u8>>;

/// Source of the volumes of a pod.
#[derive(Debug)]
pub(super) struct Source<'a> {
    pub(super) kubectl: &'a Kubectl,
    pub(super) namespace: &'a str,
}

impl Source<'_> {
    /// Mounts of the pod's container, each a folder in `dir`. None while a Secret or ConfigMap does not exist: a
    /// kubelet waits for it.
    ///
    /// # Errors
    /// If a volume has a type that is not simulated.
    pub(super) fn mounts(&self, pod: &Pod, dir: &Path) -> Result<Option<Vec<Mount>>> {
        let spec = pod.spec.as_ref().context("a pod without spec")?;
        let mut mounts = Vec::new();
        for mount in super::spec::container(pod)?.volume_mounts.iter().flatten() {
            let volume = spec.volumes.iter().flatten().find(|volume| volume.name == mount.name);
            let volume = volume.with_context(|| format!("no volume {}", mount.name))?;
            let Some(files) = self.files(pod, volume).with_context(|| format!("volume {}", volume.name))? else {
                return Ok(None);
            };
            let from = dir.join(&volume.name);
            fs::create_dir_all(&from)?;
            for (name, content) in files {
                let path = from.join(name);
                fs::write(&path, content).with_context(|| format!("writing {}", path.display()))?;
            }
            mounts.push(Mount { from, to: mount.mount_path.clone(), writable: false });
        }
        Ok(Some(mounts))
    }

    fn files(&self, pod: &Pod, volume: &Volume) -> Result<Option<Files>> {
        if let Some(secret) = &volume.secret {
            return self.secret(secret.secret_name.as_deref().context("no secretName")?);
        }
        if let Some(map) = &volume.config_map {
            return self.config_map(&map.name, map.items.as_deref());
        }
        let projected = volume.projected.as_ref().context("volumes of this type are not supported")?;
        let mut all = Files::new();
        for source in projected.sources.iter().flatten() {
            match self.projection(pod, source)? {
                Some(files) => all.extend(files),
                None => return Ok(None),
            }
        }
        Ok(Some(all))
    }

    /// Files of a projected volume: the token, the certificate authority and the namespace.
    fn projection(&self, pod: &Pod, source: &VolumeProjection) -> Result<Option<Files>> {
        if let Some(token) = &source.service_account_token {
            return Ok(Some(Files::from([(token.path.clone(), self.token(pod)?.into_bytes())])));
        }
        if let Some(map) = &source.config_map {
            return self.config_map(&map.name, map.items.as_deref());
        }
        let items = source.downward_api.as_ref().context("projections of this type are not supported")?.items.iter();
        let mut files = Files::new();
        for item in items.flatten() {
            match item.field_ref.as_ref().map(|field| field.field_path.as_str()) {
                Some("metadata.namespace") => files.insert(item.path.clone(), self.namespace.as_bytes().to_vec()),
                other => bail!("the field {other:?} is not supported"),
            };
        }
        Ok(Some(files))
    }

    /// A token that is bound to the pod, as the kubelet requests it.
    fn token(&self, pod: &Pod) -> Result<String> {
        let part = |value: &Option<String>, what: &str| value.clone().with_context(|| format!("the pod has no {what}"));
        let account = part(&pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone()), "account")?;
        let (name, uid) = (part(&pod.metadata.name, "name")?, part(&pod.metadata.uid, "uid")?);
        let bound = [
            "--bound-object-kind=Pod".to_owned(),
            format!("--bound-object-name={name}"),
            format!("--bound-object-uid={uid}"),
        ];
        let mut args = vec!["create", "token", &account, "-n", self.namespace, TOKEN];
        args.extend(bound.iter().map(String::as_str));
        Ok(self.kubectl.run(&args)?.trim().to_owned())
    }

    fn secret(&self, name: &str) -> Result<Option<Files>> {
        let secret: Option<Secret> = self.object("secret", name)?;
        let files = |secret: Secret| secret.data.into_iter().flatten().map(|(key, value)| (key, value.0)).collect();
        Ok(secret.map(files))
    }

    fn config_map(&self, name: &str, items: Option<&[KeyToPath]>) -> Result<Option<Files>> {
        let Some(map) = self.object::<ConfigMap>("configmap", name)? else { return Ok(None) };
        let data = map.data.unwrap_or_default();
        let Some(items) = items else {
            return Ok(Some(data.into_iter().map(|(key, value)| (key, value.into_bytes())).collect()));
        };
        let file = |item: &KeyToPath| {
            let value = data.get(&item.key).with_context(|| format!("{name} has no key {}", item.key))?;
            Ok((item.path.clone(), value.clone().into_bytes()))
        };
        items.iter().map(file).collect::<Result<Files>>().map(Some)
    }

    fn object<T: serde::de::DeserializeOwned>(&self, kind: &str, name: &str) -> Result<Option<T>> {
        let text = self.kubectl.run(&["get", kind, name, "-n", self.namespace, "--ignore-not-found", "-o", "json"])?;
        if text.trim().is_empty() {
            return Ok(None);
        }
        serde_json::from_str(&text).map(Some).with_context(|| format!("reading {kind} {name}"))
    }
}
