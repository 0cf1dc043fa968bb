//! The texts of a service in one deployment.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::instance::Role;
use super::start_error::StartError;
use crate::experiment::{Access, DeploymentSpec, Service, placeholder};
use hotrow_results::TierKind;

/// A service's texts with all placeholders filled.
pub(super) struct RenderedService {
    pub(super) name: String,
    pub(super) key: String,
    pub(super) argv: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) files: Vec<(String, String)>,
    pub(super) prepare: Vec<Vec<String>>,
    pub(super) ready_command: Vec<String>,
    pub(super) access: Access,
}

impl RenderedService {
    pub(super) fn filled(
        service: &Service,
        spec: &DeploymentSpec,
        role: &Role<'_>,
        mut values: BTreeMap<String, String>,
        name: &str,
    ) -> Result<Self, StartError> {
        let is_service = role.kind == TierKind::Service;
        let missing =
            |placeholder: String| StartError::Placeholder { name: name.to_owned(), placeholder };
        let mut vars = service.vars.clone();
        if is_service {
            vars.extend(spec.vars.clone());
        }
        for (var, text) in &vars {
            let filled = placeholder::fill(text, &values).map_err(missing)?;
            values.insert(var.clone(), filled);
        }
        let fill = |text: &String| placeholder::fill(text, &values).map_err(missing);
        let fill_all = |texts: &[String]| texts.iter().map(fill).collect::<Result<Vec<_>, _>>();
        let pair =
            |(key, text): (&String, &String)| Ok::<_, StartError>((key.clone(), fill(text)?));
        let (mut argv, mut env) = (fill_all(&service.command)?, service.env.clone());
        if is_service {
            argv.extend(fill_all(&spec.args)?);
            env.extend(spec.env.clone());
        }
        let mut access = service.access.clone();
        for path in access.paths_mut() {
            *path = fill(path)?;
        }
        Ok(Self {
            name: name.to_owned(),
            access,
            key: preparation_key(role.name, service, &vars),
            argv,
            env: env.iter().map(pair).collect::<Result<_, _>>()?,
            files: service.files.iter().map(pair).collect::<Result<_, _>>()?,
            prepare: service
                .prepare
                .iter()
                .map(|command| fill_all(command))
                .collect::<Result<_, _>>()?,
            ready_command: fill_all(&service.ready_command)?,
        })
    }

    pub(super) fn write_files(&self, dir: &Path) -> Result<(), StartError> {
        let failed = |path: &Path| {
            let what = path.display().to_string();
            move |error| StartError::File { what, error }
        };
        fs::create_dir_all(dir).map_err(failed(dir))?;
        for (name, text) in &self.files {
            let path = dir.join(name);
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder).map_err(failed(folder))?;
            }
            fs::write(&path, text).map_err(failed(&path))?;
        }
        Ok(())
    }
}

/// Returns the key of a preparation: the service, and the variables in its commands.
fn preparation_key(name: &str, service: &Service, vars: &BTreeMap<String, String>) -> String {
    let named = |var: &str| {
        service.prepare.iter().flatten().any(|text| placeholder::names(text).any(|n| n == var))
    };
    let used: Vec<_> = vars.iter().filter(|(var, _)| named(var)).collect();
    format!("{name} {used:?}")
}
