//! The providers that a configuration adds: other programs as subagents.

use std::path::Path;
use std::sync::Arc;

use offshoot_subagent::Provider;

use crate::config::Config;

/// The providers of the entries of a configuration, as far as this build can run them. `cwd` is where
/// they run when they do not say, `depth` how deep this program is itself.
#[cfg_attr(
    not(any(feature = "acp", feature = "process")),
    expect(unused_variables, reason = "a build without both has none")
)]
pub(crate) fn providers(
    config: &Config,
    cwd: Option<&Path>,
    guarded: bool,
    depth: u32,
) -> Vec<Arc<dyn Provider>> {
    #[cfg(any(feature = "acp", feature = "process"))]
    let run = programs::Shared::new(config, cwd, guarded, depth);
    let providers = std::iter::empty::<Arc<dyn Provider>>();
    #[cfg(feature = "acp")]
    let providers = providers.chain(config.acp.iter().map(|entry| programs::acp(entry, &run)));
    #[cfg(feature = "process")]
    let providers = providers.chain(
        config
            .process
            .iter()
            .map(|entry| programs::process(entry, &run)),
    );
    providers.collect()
}

#[cfg(any(feature = "acp", feature = "process"))]
mod programs {
    use std::path::{Path, PathBuf};
    use std::sync::Arc;
    use std::time::Duration;

    use offshoot_core::process::{Guardian, ProgramConfig};
    use offshoot_subagent::Provider;

    use crate::config::Config;
    use crate::runtime::stop_grace;

    /// How all of them are run.
    pub(super) struct Shared {
        run: ProgramConfig,
        cwd: Option<PathBuf>,
        depth: u32,
    }

    impl Shared {
        pub(super) fn new(config: &Config, cwd: Option<&Path>, guarded: bool, depth: u32) -> Self {
            let run = ProgramConfig {
                stop_grace: stop_grace(config),
                guardian: guarded.then(Guardian::default),
                ..ProgramConfig::default()
            };
            let cwd = cwd.map(Path::to_owned);
            Self { run, cwd, depth }
        }

        fn run(&self, allow: &[String]) -> ProgramConfig {
            let mut run = self.run.clone();
            run.env = run.env.allow_each(allow);
            run
        }

        /// A folder of its own is seen from that of the run.
        fn cwd(&self, own: Option<&PathBuf>) -> Option<PathBuf> {
            match (&self.cwd, own) {
                (Some(cwd), Some(own)) => Some(cwd.join(own)),
                (cwd, own) => own.or(cwd.as_ref()).cloned(),
            }
        }
    }

    #[cfg(feature = "process")]
    pub(super) fn process(
        entry: &crate::config::ProcessConfig,
        shared: &Shared,
    ) -> Arc<dyn Provider> {
        use offshoot_process::{FieldPath, ProcessProvider, ProcessSettings};
        use offshoot_subagent::Outcome;

        use crate::config::{ExitMeaning, check};

        // A configuration with a bad path has been refused.
        let path = |text: &Option<String>| -> Option<FieldPath> { text.as_ref()?.parse().ok() };
        let mut settings = ProcessSettings::new(&entry.name, &entry.command);
        settings.args.clone_from(&entry.args);
        settings.env = entry.env.clone().into_iter().collect();
        settings.depth = shared.depth;
        settings.cwd = shared.cwd(entry.cwd.as_ref());
        settings.deadline = entry.timeout_ms.map(Duration::from_millis);
        settings.answer = path(&entry.answer);
        settings.input_tokens = path(&entry.input_tokens);
        settings.output_tokens = path(&entry.output_tokens);
        for (code, meaning) in &entry.exit_codes {
            let outcome = match meaning {
                ExitMeaning::Completed => Outcome::Completed,
                ExitMeaning::Error => Outcome::Error,
                ExitMeaning::MaxTokens => Outcome::MaxTokens,
                ExitMeaning::Refusal => Outcome::Refusal,
                ExitMeaning::Aborted => Outcome::Aborted,
            };
            settings
                .exit_codes
                .extend(check::exit_code(code).map(|code| (code, outcome)));
        }
        settings.run = shared.run(&entry.env_allow);
        Arc::new(ProcessProvider::new(settings))
    }

    #[cfg(feature = "acp")]
    pub(super) fn acp(entry: &crate::config::AcpConfig, shared: &Shared) -> Arc<dyn Provider> {
        use offshoot_acp::{AcpProvider, AcpSettings, Files, Permission};

        use crate::config;

        let mut settings = AcpSettings::new(&entry.name, &entry.command);
        settings.args.clone_from(&entry.args);
        settings.env = entry.env.clone().into_iter().collect();
        settings.depth = shared.depth;
        settings.cwd = shared.cwd(entry.cwd.as_ref());
        settings.permission = match entry.permission {
            config::Permission::Reject => Permission::Reject,
            config::Permission::Allow => Permission::Allow,
        };
        settings.files = match entry.files {
            config::Files::None => Files::None,
            config::Files::Read => Files::Read,
            config::Files::ReadWrite => Files::ReadWrite,
        };
        settings.start_timeout = Duration::from_millis(entry.start_timeout_ms);
        settings.deadline = entry.timeout_ms.map(Duration::from_millis);
        settings.cancel_grace = Duration::from_millis(entry.cancel_grace_ms);
        settings.exit_grace = Duration::from_millis(entry.exit_grace_ms);
        settings.run = shared.run(&entry.env_allow);
        Arc::new(AcpProvider::new(settings))
    }
}
