//! Language models as tools: `model.chat` and `model.embed`, behind the gate like every other tool.
//!
//! Here live the servers that can be talked to ([`Backend`]: those that speak as OpenAI's does, Anthropic's, and a
//! script), what counts tokens and money, the models that there are ([`Models`]) and the tools themselves ([`pack()`]).
//! A [`fake`] model server comes along for tests. What is said to a model, and what becomes of its answer, is the
//! business of whoever calls.

mod anthropic;
mod backend;
mod chat;
mod collect;
mod config;
mod conversation;
mod embed;
mod error;
pub mod fake;
mod models;
mod names;
mod openai;
mod pack;
mod price;
pub mod sse;
mod tokens;
mod wire;

pub use backend::{Backend, Chatting, Deltas};
pub use chat::{
    ChatRequest, ChatResponse, Delta, Finish, MOST_CALLS, MOST_MESSAGES, Message, NativeCall, Role,
    ToolSpec, Usage,
};
pub use collect::{Collector, collect};
pub use config::{Environment, Kind, ModelConfig, ToolMode};
pub use embed::MOST_TEXTS;
pub use error::{Failure, ModelError};
pub use models::{BadModel, Model, Models, UnknownModel};
pub use openai::MaxTokensField;
pub use pack::{
    ChatInput, ChatOutput, EmbedInput, EmbedOutput, TOKENS, USD_MICROS, chat_declaration,
    embed_declaration, pack,
};
pub use price::Price;
pub use tokens::Tokenizer;
