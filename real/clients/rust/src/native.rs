use crate::{case, expect, schema, setting, too_long, weather, Found, Problem, FORBIDDEN_MODEL, TEXT};
use futures::StreamExt;
use ollama_rs::generation::chat::{request::ChatMessageRequest, ChatMessage};
use ollama_rs::generation::embeddings::request::{EmbeddingsInput, GenerateEmbeddingsRequest};
use ollama_rs::generation::parameters::{FormatType, JsonStructure};
use ollama_rs::headers::{HeaderMap, AUTHORIZATION};
use ollama_rs::{error::OllamaError, models::ModelOptions, Ollama};

/// Without a header of its own the client sends no key.
fn client(key: &str) -> Ollama {
    let mut headers = HeaderMap::new();
    if let Ok(value) = format!("Bearer {}", setting(key)).parse() {
        headers.insert(AUTHORIZATION, value);
    }
    Ollama::builder().url(setting("URL")).request_headers(headers).build()
}

fn asked(model: &str, text: String, bound: i32) -> ChatMessageRequest {
    ChatMessageRequest::new(model.to_string(), vec![ChatMessage::user(text)])
        .options(ModelOptions::default().num_predict(bound))
}

/// Its error is the text of the body, without the status.
async fn refused(key: &str, model: &str, text: String, status: u16) -> Found {
    match client(key).send_chat_messages(asked(model, text, 8)).await {
        Err(OllamaError::Other(body)) => expect(body.contains(&format!("\"code\":{status}")), &body),
        Err(error) => Err(error.into()),
        Ok(_) => Err(Problem::Failed("not refused".to_string())),
    }
}

async fn chat() -> Found {
    let answer = client("KEY").send_chat_messages(asked("plain", TEXT.into(), 8)).await?;
    expect(answer.final_data.is_some_and(|data| data.eval_count > 0), "no counts")
}

async fn stream() -> Found {
    let mut parts = client("KEY").send_chat_messages_stream(asked("plain", TEXT.into(), 8)).await?;
    let (mut count, mut done) = (0, false);
    while let Some(part) = parts.next().await {
        let part = part.map_err(|()| Problem::Failed("it broke".to_string()))?;
        count += 1;
        done = part.done;
    }
    expect(count > 1 && done, "no end")
}

async fn tools() -> Found {
    let tool = serde_json::json!({
        "type": "function",
        "function": {"name": "get_weather", "description": "The weather in a city", "parameters": weather()}
    });
    let request = asked("tools", TEXT.into(), 60).tools(vec![serde_json::from_value(tool)?]);
    let answer = client("KEY").send_chat_messages(request).await?;
    let call = answer.message.tool_calls.first().ok_or(Problem::Failed("no call".to_string()))?;
    expect(call.function.arguments["city"] == "Paris", "another city")
}

async fn structured() -> Found {
    let format = JsonStructure::new_for_schema(schema().try_into()?);
    let request = asked("plain", TEXT.into(), 60).format(FormatType::StructuredJson(Box::new(format)));
    let answer = client("KEY").send_chat_messages(request).await?;
    let parsed: serde_json::Value = serde_json::from_str(&answer.message.content)?;
    expect(parsed["kind"].is_string(), "no kind")
}

async fn embeddings() -> Found {
    let input = EmbeddingsInput::Multiple(vec!["one".into(), "two".into()]);
    let request = GenerateEmbeddingsRequest::new("embed".into(), input);
    expect(client("KEY").generate_embeddings(request).await?.embeddings.len() == 2, "not two")
}

async fn list() -> Found {
    let models = client("KEY").list_local_models().await?;
    expect(models.iter().any(|model| model.name == "plain:latest"), "not listed")
}

async fn abort() -> Found {
    let mut parts = client("KEY").send_chat_messages_stream(asked("slow", TEXT.into(), 900)).await?;
    expect(parts.next().await.is_some(), "no answer")
}

pub async fn run() {
    let (name, version) = ("ollama-rs", "0.3.6");
    case(name, version, "chat", chat()).await;
    case(name, version, "stream", stream()).await;
    case(name, version, "tools", tools()).await;
    case(name, version, "structured", structured()).await;
    case(name, version, "embeddings", embeddings()).await;
    case(name, version, "list", list()).await;
    case(name, version, "abort", abort()).await;
    case(name, version, "401", refused("WRONG_KEY", "plain", TEXT.into(), 401)).await;
    case(name, version, "403", refused("KEY", FORBIDDEN_MODEL, TEXT.into(), 403)).await;
    case(name, version, "413", refused("KEY", "plain", too_long(), 413)).await;
    case(name, version, "429", refused("LIMITED_KEY", "plain", TEXT.into(), 429)).await;
    case(name, version, "retry-after", async { Err(Problem::NotOffered("its error has no headers")) }).await;
}
