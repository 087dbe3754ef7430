//! The key is in no log, event, error or `Debug` text, whatever a provider does with it.

use std::io::Write;
use std::sync::{Arc, Mutex};

use offshoot_agent::TurnEndReason;
use offshoot_llm::{LlmModel, LlmSettings, Provider};
use offshoot_model_server::{Fault, Rule};
use tracing_subscriber::fmt::MakeWriter;

use crate::support::{KEY, PROVIDERS, World, mentions, model, often, route};

#[derive(Clone, Default)]
struct Logged(Arc<Mutex<Vec<u8>>>);

impl Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Logged {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn a_provider_that_repeats_the_key_does_not_spread_it() {
    let logged = Logged::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(logged.clone())
        .finish();
    let _logging = tracing::subscriber::set_default(subscriber);
    for provider in PROVIDERS
        .into_iter()
        .filter(|provider| provider.requires_key())
    {
        for body in [
            format!(r#"{{"error":{{"message":"no such key: {KEY}"}}}}"#),
            format!("<html>{KEY}</html>"),
        ] {
            for code in [401, 500] {
                let echo = Fault::Status {
                    code,
                    retry_after: None,
                    body: Some(body.clone()),
                };
                let world = World::new(provider, often(), [Rule::any().fault(echo)]);
                assert_eq!(world.ask("go").await, TurnEndReason::Error);
                assert!(world.error().contains("[key]"), "{}", world.error());
                assert!(!mentions(&world.events(), KEY), "{provider}");
            }
        }
        let model = model(provider, "http://127.0.0.1:1/", LlmSettings::default());
        assert!(!format!("{model:?}").contains(KEY));
    }
    let log = String::from_utf8_lossy(&logged.0.lock().unwrap()).into_owned();
    assert!(log.contains("a model request failed"), "{log}");
    assert!(!log.contains(KEY), "{log}");
}

#[test]
fn without_a_key_there_is_no_model() {
    for provider in PROVIDERS {
        let made = LlmModel::new(
            route(provider, "http://127.0.0.1:1"),
            None,
            LlmSettings::default(),
        );
        match made {
            Ok(_) => assert!(!provider.requires_key(), "{provider}"),
            Err(error) => {
                assert_eq!(error.code(), "missing_key");
                let variable = provider.key_variable().unwrap();
                assert!(error.to_string().contains(variable), "{error}");
            }
        }
    }
    let nowhere = "openai-compatible/x".parse().unwrap();
    let error = LlmModel::new(nowhere, None, LlmSettings::default()).unwrap_err();
    assert_eq!(error.code(), "missing_base_url");
    assert_eq!(Provider::OpenAiCompatible.base_url(), None);
}
