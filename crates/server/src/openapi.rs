//! The OpenAPI description, made from the table of endpoints. OpenAPI 3.1 speaks JSON Schema, so the
//! types describe themselves as they do in tool contracts.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use tollgate_contract::error::ErrorBody;

use crate::endpoint::{Access, Answer, Endpoint};

/// Describes the endpoints.
pub(crate) fn document(endpoints: &[Endpoint]) -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    settings.meta_schema = None;
    let mut generator = settings.into_generator();
    let mut paths = Map::new();
    for endpoint in endpoints {
        let operation = operation(endpoint, &mut generator);
        let path = paths.entry(endpoint.path).or_insert_with(|| json!({}));
        if let Some(path) = path.as_object_mut() {
            path.insert(endpoint.method.as_str().to_lowercase(), operation);
        }
    }
    let _ = generator.subschema_for::<ErrorBody>();
    let mut schemas: Map<String, Value> = generator.take_definitions(true);
    schemas.sort_keys();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tollgate",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "One gate for everything an AI agent does to the outside world.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "http://127.0.0.1:8090"}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "An API key (`tg_key_…`) or a short-lived token (`tg_tok_…`)."},
            },
        },
    })
}

fn operation(endpoint: &Endpoint, generator: &mut schemars::SchemaGenerator) -> Value {
    let mut parameters = path_parameters(endpoint.path);
    if let Some(query) = endpoint.query {
        parameters.extend(query_parameters(query(generator).to_value()));
    }
    if endpoint.takes_idempotency_key {
        parameters.push(json!({
            "name": "Idempotency-Key", "in": "header", "required": false,
            "description": "The same key with the same input gives the first result for 24 hours.",
            "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]*$"},
        }));
    }
    let mut responses = Map::new();
    for answer in &endpoint.answers {
        let response = responses
            .entry(answer.status.to_string())
            .or_insert_with(|| json!({"description": answer.what, "content": {}}));
        // One status may come with several kinds of content.
        if answer.content.is_empty() {
            if let Some(response) = response.as_object_mut() {
                response.remove("content");
            }
        } else if let Some(content) = response.get_mut("content").and_then(Value::as_object_mut) {
            content.insert(answer.content.to_owned(), json!({"schema": schema(answer, generator)}));
        }
    }
    responses.insert(
        "default".to_owned(),
        json!({
            "description": "An error. `tollgate explain CODE` says what to do.",
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}},
        }),
    );
    let mut operation = json!({
        "operationId": endpoint.id,
        "summary": endpoint.summary,
        "parameters": parameters,
        "responses": responses,
    });
    let Some(members) = operation.as_object_mut() else { return operation };
    if let Some(body) = endpoint.body {
        let schema = body(generator);
        members.insert(
            "requestBody".to_owned(),
            json!({"required": true, "content": {"application/json": {"schema": schema}}}),
        );
    }
    match endpoint.access {
        Access::Open | Access::Local => {}
        Access::Keyless(scope) => {
            members.insert("security".to_owned(), json!([{}, {"key": []}]));
            members.insert("x-tollgate-scope".to_owned(), json!(scope));
        }
        Access::Gate => {
            members.insert("security".to_owned(), json!([{"key": []}]));
        }
        Access::Scope(scope) => {
            members.insert("security".to_owned(), json!([{"key": []}]));
            members.insert("x-tollgate-scope".to_owned(), json!(scope));
        }
    }
    operation
}

fn schema(answer: &Answer, generator: &mut schemars::SchemaGenerator) -> Value {
    match answer.schema {
        Some(schema) => schema(generator).to_value(),
        None if answer.content == "application/json" => json!({"type": "object"}),
        None => json!({}),
    }
}

fn path_parameters(path: &str) -> Vec<Value> {
    let names = path.split('{').skip(1).filter_map(|part| part.split('}').next());
    names
        .map(|name| {
            json!({"name": name, "in": "path", "required": true, "schema": {"type": "string", "minLength": 1}})
        })
        .collect()
}

/// The members of a query's type, as parameters.
fn query_parameters(schema: Value) -> Vec<Value> {
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let properties = schema.get("properties").and_then(Value::as_object);
    let describe = |(name, schema): (&String, &Value)| {
        let mut schema = schema.clone();
        let description = schema.as_object_mut().and_then(|members| members.remove("description"));
        json!({
            "name": name, "in": "query", "required": required.contains(&name.as_str()),
            "description": description, "schema": schema,
        })
    };
    properties.into_iter().flatten().map(describe).collect()
}
