//! The models that there are, and who may use them.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    fmt,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::Duration,
};

use tollgate_contract::{
    Quoted,
    text::{Clean, list, nearest},
};

use crate::{
    anthropic::{self, Anthropic},
    backend::Backend,
    chat::{ChatRequest, Usage},
    config::{Environment, Kind, ModelConfig, environment},
    embed::Embedder,
    fake::{Played, Script},
    openai::OpenAi,
    price::Price,
    tokens::{Counts, Tokenizer},
    wire::{Http, KeyHeader, Talker, Transport},
};

/// For how many sessions models are remembered; those that came first are forgotten first.
const MOST_SESSIONS: usize = 10_000;

/// How many models one session may have.
const MOST_OF_A_SESSION: usize = 16;

/// The longest name.
const LONGEST_NAME: usize = 100;

/// A model that can be talked to.
pub struct Model {
    name: String,
    config: ModelConfig,
    tokenizer: Tokenizer,
    backend: Arc<dyn Backend>,
    embedder: Option<Embedder>,
}

/// A model that cannot be set up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the model {name}: `{setting}` {problem}")]
pub struct BadModel {
    /// The model.
    pub name: Quoted,
    /// The setting.
    pub setting: String,
    /// What it should be.
    pub problem: Clean,
}

/// A model that there is not, or not for this caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnknownModel {
    /// None has this name.
    #[error("there is no model {name}{hint}")]
    Name {
        /// The name that was asked for.
        name: Quoted,
        /// Those that there are.
        hint: Clean,
    },
    /// None was named, and there is no default.
    #[error("no model is named and there is no default; {0}")]
    NoDefault(Clean),
    /// None makes embeddings.
    #[error("{0} makes no embeddings; set `embedding_model` of a model of the kind `openai`")]
    NoEmbeddings(Clean),
}

impl Model {
    fn new(name: &str, config: ModelConfig, environment: &Environment) -> Result<Self, BadModel> {
        let bad = |(setting, problem): (String, String)| BadModel {
            name: Quoted::new(name),
            setting,
            problem: Clean::new(&problem),
        };
        if !is_name(name) {
            let problem = format!("has from 1 to {LONGEST_NAME} characters, none of them a space");
            return Err(bad(("name".to_owned(), problem)));
        }
        config.check().map_err(bad)?;
        let limits = config.limits();
        let (transport, scripted) = transport(&config, environment).map_err(bad)?;
        let model = config.model.clone().or_else(|| scripted.clone());
        let backend: Arc<dyn Backend> = match config.kind {
            Kind::Anthropic => {
                Arc::new(Talker::new(Anthropic, Arc::clone(&transport), limits, model))
            }
            Kind::Openai | Kind::Scripted => {
                let protocol = OpenAi::new(config.max_tokens_field);
                Arc::new(Talker::new(protocol, Arc::clone(&transport), limits, model))
            }
        };
        let embeds = match config.kind {
            Kind::Anthropic => None,
            Kind::Openai | Kind::Scripted => config.embedding_model.clone().or(scripted),
        };
        let embedder = embeds.map(|model| Embedder::new(transport, limits, model));
        let tokenizer = config.tokenizer.unwrap_or_else(|| {
            config.model.as_deref().map_or(Tokenizer::Estimate, Tokenizer::for_model)
        });
        Ok(Self { name: name.to_owned(), config, tokenizer, backend, embedder })
    }

    /// What it is called here.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the operator said of it.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// What talks to it.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// What makes embeddings, if it does.
    pub(crate) fn embedder(&self) -> Option<&Embedder> {
        self.embedder.as_ref()
    }

    /// How its tokens are counted.
    pub fn tokenizer(&self) -> Tokenizer {
        self.tokenizer
    }

    /// How many tokens a request has.
    pub fn count(&self, request: &ChatRequest) -> u64 {
        self.tokenizer.count_request(request)
    }

    /// What it costs, if that is known.
    pub fn price(&self) -> Option<&Price> {
        self.config.price.as_ref()
    }

    /// What so many tokens cost, in millionths of a dollar, if that is known.
    pub fn cost(&self, usage: &Usage) -> Option<u64> {
        self.price().map(|price| price.cost(usage))
    }

    /// How long an answer may take.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.config.timeout_seconds)
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model").field("name", &self.name).field("config", &self.config).finish()
    }
}

fn is_name(name: &str) -> bool {
    let plain = |c: char| tollgate_contract::text::is_plain(c) && !c.is_whitespace();
    !name.is_empty() && name.len() <= LONGEST_NAME && name.chars().all(plain)
}

/// A way to a model, and its name where a script says it.
type Way = (Arc<dyn Transport>, Option<String>);

fn transport(config: &ModelConfig, environment: &Environment) -> Result<Way, (String, String)> {
    if let (Kind::Scripted, Some(path)) = (config.kind, &config.script) {
        let script = Script::read(path).map_err(|bad| ("script".to_owned(), bad.to_string()))?;
        let name = script.model.clone();
        return Ok((Arc::new(Played::new(script)), Some(name)));
    }
    let mut headers = config.extra_headers()?;
    let header = match config.kind {
        Kind::Anthropic => {
            let (name, value) = anthropic::VERSION;
            let version = reqwest::header::HeaderValue::from_static(value);
            headers.entry(name).or_insert(version);
            KeyHeader::ApiKey
        }
        Kind::Openai | Kind::Scripted => KeyHeader::Bearer,
    };
    let key = config.api_key_env.clone().map(|variable| (variable, header));
    let timeout = Duration::from_secs(config.timeout_seconds);
    let http = Http::new(config.address()?, key, Arc::clone(environment), headers, timeout);
    Ok((Arc::new(http), None))
}

/// The models that there are. Clones share them.
#[derive(Clone)]
pub struct Models {
    shared: Arc<RwLock<Known>>,
    environment: Environment,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Known {
    models: BTreeMap<String, Arc<Model>>,
    default: Option<String>,
    sessions: HashMap<String, Vec<Arc<Model>>>,
    /// In the order in which they came.
    order: VecDeque<String>,
}

impl Models {
    /// The configured models, and which of them is used where none is named; the only one without.
    pub fn new(
        configs: BTreeMap<String, ModelConfig>,
        default: Option<String>,
    ) -> Result<Self, BadModel> {
        Self::with_environment(configs, default, environment())
    }

    /// The same, with keys from somewhere else than the environment.
    pub fn with_environment(
        configs: BTreeMap<String, ModelConfig>,
        default: Option<String>,
        environment: Environment,
    ) -> Result<Self, BadModel> {
        let models = Self { shared: Arc::default(), environment, counts: Arc::default() };
        models.replace(configs, default)?;
        Ok(models)
    }

    fn known(&self) -> RwLockReadGuard<'_, Known> {
        self.shared.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn changing(&self) -> RwLockWriteGuard<'_, Known> {
        self.shared.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts other models in the place of the configured ones, all of them or none. Those that stay the same go on,
    /// and so do those of sessions.
    pub fn replace(
        &self,
        configs: BTreeMap<String, ModelConfig>,
        default: Option<String>,
    ) -> Result<(), BadModel> {
        let before = self.known().models.clone();
        let mut models = BTreeMap::new();
        for (name, config) in configs {
            let same = before.get(&name).filter(|model| model.config == config);
            let model = match same {
                Some(model) => Arc::clone(model),
                None => Arc::new(Model::new(&name, config, &self.environment)?),
            };
            models.insert(name, model);
        }
        if let Some(name) = default.as_ref().filter(|name| !models.contains_key(*name)) {
            let hint = hint(name, models.keys().map(String::as_str));
            return Err(BadModel {
                name: Quoted::new(name),
                setting: "default".to_owned(),
                problem: Clean::already(format!("names a model that is not configured{hint}")),
            });
        }
        let only = || models.keys().next().filter(|_| models.len() == 1).cloned();
        let default = default.or_else(only);
        let mut known = self.changing();
        known.models = models;
        known.default = default;
        Ok(())
    }

    /// Adds a model that only calls of one session may use. It comes before a configured one of the same name, and is
    /// what that session uses where no model is named and there is no default.
    pub fn set_for_session(
        &self,
        session: &str,
        name: &str,
        config: ModelConfig,
    ) -> Result<(), BadModel> {
        let is_same = |model: &&Arc<Model>| model.name == name && model.config == config;
        let same =
            self.known().sessions.get(session).and_then(|all| all.iter().find(is_same).cloned());
        // One that stays the same goes on, with its connections and what it has learned of its server.
        let model = match same {
            Some(model) => model,
            None => Arc::new(Model::new(name, config, &self.environment)?),
        };
        let mut known = self.changing();
        let known = &mut *known;
        // What was set longest ago is forgotten first.
        known.order.retain(|known| known != session);
        known.order.push_back(session.to_owned());
        let of_session = known.sessions.entry(session.to_owned()).or_default();
        of_session.retain(|known| known.name != name);
        of_session.push(model);
        if of_session.len() > MOST_OF_A_SESSION {
            of_session.remove(0);
        }
        while known.order.len() > MOST_SESSIONS {
            if let Some(oldest) = known.order.pop_front() {
                known.sessions.remove(&oldest);
            }
        }
        Ok(())
    }

    /// The models of a session are not needed any more.
    pub fn forget_session(&self, session: &str) {
        let mut known = self.changing();
        if known.sessions.remove(session).is_some() {
            known.order.retain(|known| known != session);
        }
    }

    /// The names of the configured models.
    pub fn names(&self) -> Vec<String> {
        self.known().models.keys().cloned().collect()
    }

    /// The name of the model that is used where none is named.
    pub fn default_name(&self) -> Option<String> {
        self.known().default.clone()
    }

    /// How many tokens a request has. The gate asks several times for each call.
    pub(crate) fn count(&self, tokenizer: Tokenizer, request: &ChatRequest) -> u64 {
        self.counts.count(tokenizer, request)
    }

    /// The model of this name, or the default, for a call of a session.
    pub fn get(
        &self,
        name: Option<&str>,
        session: Option<&str>,
    ) -> Result<Arc<Model>, UnknownModel> {
        self.known().get(name, session)
    }

    /// The model that makes embeddings: the one of this name, or the default if it does, or the first that does.
    pub(crate) fn embedding(
        &self,
        name: Option<&str>,
        session: Option<&str>,
    ) -> Result<Arc<Model>, UnknownModel> {
        let known = self.known();
        let embeds = |model: &Arc<Model>| model.embedder.is_some();
        let chosen = known.get(name, session);
        if let Ok(model) = &chosen
            && embeds(model)
        {
            return chosen;
        }
        if name.is_some() {
            let name = chosen?.name.clone();
            return Err(UnknownModel::NoEmbeddings(Clean::new(&format!("the model `{name}`"))));
        }
        let of_session = session.and_then(|session| known.sessions.get(session));
        let mut all = of_session.into_iter().flatten().rev().chain(known.models.values());
        let none = || UnknownModel::NoEmbeddings(Clean::already("no model".to_owned()));
        all.find(|model| embeds(model)).cloned().ok_or_else(none)
    }
}

impl Known {
    fn get(&self, name: Option<&str>, session: Option<&str>) -> Result<Arc<Model>, UnknownModel> {
        let nothing = Vec::new();
        let of_session = session.and_then(|session| self.sessions.get(session)).unwrap_or(&nothing);
        let names = || {
            let own = of_session.iter().map(|model| model.name.as_str());
            own.chain(self.models.keys().map(String::as_str))
        };
        let Some(name) = name.or(self.default.as_deref()) else {
            let newest = of_session.last().cloned();
            let said = match self.models.is_empty() {
                true => "name a server with --model URL, or configure one under `[models.NAME]`"
                    .to_owned(),
                false => format!("name one of {}", list(names())),
            };
            return newest.ok_or_else(|| UnknownModel::NoDefault(Clean::already(said)));
        };
        let own = of_session.iter().find(|model| model.name == name);
        own.or_else(|| self.models.get(name)).cloned().ok_or_else(|| {
            let hint = Clean::already(hint(name, names()));
            UnknownModel::Name { name: Quoted::new(name), hint }
        })
    }
}

fn hint<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    match nearest(name, known.clone()) {
        Some(near) => format!("; did you mean `{near}`?"),
        None if known.clone().next().is_none() => {
            "; none is configured: add one under `[models.NAME]`".to_owned()
        }
        None => format!("; there are {}", list(known.take(20))),
    }
}

#[cfg(test)]
#[path = "models_tests.rs"]
mod tests;
