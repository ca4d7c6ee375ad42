use crate::{case, expect, schema, setting, too_long, weather, Found, Problem, FORBIDDEN_MODEL, TEXT};
use async_openai::types::chat::{ChatCompletionMessageToolCalls, CreateChatCompletionRequest};
use async_openai::types::embeddings::CreateEmbeddingRequest;
use async_openai::{config::OpenAIConfig, error::OpenAIError, Client};
use futures::StreamExt;
use serde_json::{json, Value};

fn client(key: &str) -> Client<OpenAIConfig> {
    let config = OpenAIConfig::new().with_api_base(format!("{}/v1", setting("URL"))).with_api_key(setting(key));
    Client::with_config(config)
}

fn asked(model: &str, text: &str, more: Value) -> Result<CreateChatCompletionRequest, Problem> {
    let mut body = json!({"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 8});
    if let (Value::Object(all), Value::Object(more)) = (&mut body, more) {
        all.extend(more);
    }
    Ok(serde_json::from_value(body)?)
}

async fn refused(key: &str, model: &str, text: &str, status: u16) -> Found {
    match client(key).chat().create(asked(model, text, json!({}))?).await {
        Err(OpenAIError::ApiError(error)) => expect(error.status_code.as_u16() == status, "another status"),
        Err(error) => Err(error.into()),
        Ok(_) => Err(Problem::Failed("not refused".to_string())),
    }
}

async fn chat() -> Found {
    let answer = client("KEY").chat().create(asked("plain", TEXT, json!({}))?).await?;
    expect(answer.usage.is_some_and(|usage| usage.completion_tokens > 0), "no usage")
}

async fn stream() -> Found {
    let more = json!({"stream": true, "stream_options": {"include_usage": true}});
    let mut parts = client("KEY").chat().create_stream(asked("plain", TEXT, more)?).await?;
    let (mut text, mut tokens) = (String::new(), 0);
    while let Some(part) = parts.next().await {
        let part = part?;
        tokens = part.usage.map_or(tokens, |usage| usage.completion_tokens);
        for choice in part.choices {
            text.push_str(&choice.delta.content.unwrap_or_default());
        }
    }
    expect(!text.is_empty() && tokens > 0, "no text or usage")
}

async fn tools() -> Found {
    let tool = json!({
        "type": "function",
        "function": {"name": "get_weather", "description": "The weather in a city", "parameters": weather()}
    });
    let request = asked("tools", TEXT, json!({"max_tokens": 60, "tools": [tool]}))?;
    let answer = client("KEY").chat().create(request).await?;
    let calls = answer.choices.into_iter().next().and_then(|choice| choice.message.tool_calls);
    match calls.unwrap_or_default().first() {
        Some(ChatCompletionMessageToolCalls::Function(call)) => {
            expect(call.function.arguments == r#"{"city":"Paris"}"#, "another city")
        }
        _ => Err(Problem::Failed("no call".to_string())),
    }
}

async fn structured() -> Found {
    let format = json!({"type": "json_schema", "json_schema": {"name": "answer", "schema": schema(), "strict": true}});
    let request = asked("plain", TEXT, json!({"max_tokens": 60, "response_format": format}))?;
    let answer = client("KEY").chat().create(request).await?;
    let text = answer.choices.into_iter().next().and_then(|choice| choice.message.content).unwrap_or_default();
    let parsed: Value = serde_json::from_str(&text)?;
    expect(parsed["kind"].is_string(), "no kind")
}

async fn embeddings() -> Found {
    let request: CreateEmbeddingRequest = serde_json::from_value(json!({"model": "embed", "input": ["one", "two"]}))?;
    expect(client("KEY").embeddings().create(request).await?.data.len() == 2, "not two")
}

async fn list() -> Found {
    let models = client("KEY").models().list().await?;
    expect(models.data.iter().any(|model| model.id == "plain:latest"), "not listed")
}

async fn abort() -> Found {
    let request = asked("slow", TEXT, json!({"max_tokens": 900, "stream": true}))?;
    let mut parts = client("KEY").chat().create_stream(request).await?;
    expect(parts.next().await.is_some(), "no answer")
}

pub async fn run() {
    let (name, version) = ("async-openai", "0.43.0");
    case(name, version, "chat", chat()).await;
    case(name, version, "stream", stream()).await;
    case(name, version, "tools", tools()).await;
    case(name, version, "structured", structured()).await;
    case(name, version, "embeddings", embeddings()).await;
    case(name, version, "list", list()).await;
    case(name, version, "abort", abort()).await;
    case(name, version, "401", refused("WRONG_KEY", "plain", TEXT, 401)).await;
    case(name, version, "403", refused("KEY", FORBIDDEN_MODEL, TEXT, 403)).await;
    case(name, version, "413", refused("KEY", "plain", &too_long(), 413)).await;
    case(name, version, "429", refused("LIMITED_KEY", "plain", TEXT, 429)).await;
    case(name, version, "retry-after", async { Err(Problem::NotOffered("its error has no headers")) }).await;
}
