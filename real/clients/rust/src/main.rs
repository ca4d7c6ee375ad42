//! The cases that every client is asked to do.
mod native;
mod openai;

use std::{env, future::Future};

pub fn setting(name: &str) -> String {
    env::var(format!("TOLLGATE_{name}")).unwrap_or_default()
}

pub const TEXT: &str = "Say hello.";
pub const FORBIDDEN_MODEL: &str = "nobody/has:this";

pub fn too_long() -> String {
    "x".repeat(300_000)
}

pub fn schema() -> serde_json::Value {
    serde_json::json!({
        "type": "object",
        "properties": {"kind": {"type": "string", "enum": ["a", "b"]}},
        "required": ["kind"],
        "additionalProperties": false
    })
}

pub fn weather() -> serde_json::Value {
    serde_json::json!({
        "type": "object",
        "properties": {"city": {"type": "string", "description": "a city"}},
        "required": ["city"]
    })
}

pub enum Problem {
    NotOffered(&'static str),
    Failed(String),
}

impl<E: std::error::Error> From<E> for Problem {
    fn from(error: E) -> Self {
        Problem::Failed(error.to_string())
    }
}

pub type Found = Result<(), Problem>;

pub fn expect(truth: bool, what: &str) -> Found {
    if truth {
        Ok(())
    } else {
        Err(Problem::Failed(what.to_string()))
    }
}

/// One line of JSON for each case.
pub async fn case(client: &str, version: &str, name: &str, ask: impl Future<Output = Found>) {
    let (result, detail) = match ask.await {
        Ok(()) => ("works", String::new()),
        Err(Problem::NotOffered(why)) => ("not offered", why.to_string()),
        Err(Problem::Failed(why)) => ("fails", why.chars().take(600).collect()),
    };
    let text = |value: &str| serde_json::Value::from(value).to_string();
    println!(
        "{{\"client\":{},\"version\":{},\"case\":{},\"result\":{},\"detail\":{}}}",
        text(client),
        text(version),
        text(name),
        text(result),
        text(&detail)
    );
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    match env::args().nth(1).as_deref() {
        Some("ollama-rs") => native::run().await,
        _ => openai::run().await,
    }
}
