"""What can be asked, as an OpenAPI document, and what the run of a server expects and answers."""

from __future__ import annotations

from typing import Any

import scipy.sparse as sp

from ... import __version__
from ...explain.explanation import output_names
from .requests import Sizes
from .scoring import Scorer

_NODE: dict[str, Any] = {"description": "Name or id of a node.", "oneOf": [{"type": "string"}, {"type": "integer"}]}
_MOST_NAMES = 1000  # names of features in the description of a run


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(properties: dict[str, Any], required: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        **({"required": list(required)} if required else {}),
        "additionalProperties": False,
    }


def _schemas(sizes: Sizes) -> dict[str, Any]:
    features = {
        "description": "All numbers in order, or values by the name of their column (see /schema), or by its number.",
        "oneOf": [
            {"type": "array", "items": {"type": "number"}},
            {"type": "object", "additionalProperties": {"type": ["number", "string", "boolean", "null"]}},
        ],
    }
    edge = _object({"source": _NODE, "target": _NODE, "weight": {"type": "number", "default": 1}}, ("source", "target"))
    nodes = {"type": "array", "items": _NODE, "minItems": 1, "maxItems": sizes.nodes}
    new_nodes = {"type": "array", "items": _ref("NewNode"), "minItems": 1, "maxItems": sizes.nodes}
    edges = {"type": "array", "items": edge, "maxItems": sizes.edges}
    keep = {"type": "boolean", "default": False, "description": "Keep the new nodes for later requests."}
    asked = {"graph": _ref("NewGraph"), "targets": nodes, "keep": keep}
    probabilities = {"type": "object", "additionalProperties": {"type": "number"}}
    return {
        "NewNode": _object({"id": _NODE, "features": features}, ("id",)),
        "NewGraph": _object({"nodes": new_nodes, "edges": edges}, ("nodes",)),
        "Known": _object({"nodes": nodes}, ("nodes",)),
        "New": _object(asked, ("graph",)),
        "Explain": _object({"node": _NODE, "class": _NODE, "graph": _ref("NewGraph"), "keep": keep}, ("node",)),
        "Prediction": {
            "type": "object",
            "properties": {
                "node": _NODE,
                "prediction": {"description": "A class, a list of labels, a value, or values by target."},
                "probabilities": probabilities,
            },
        },
        "Error": {"type": "object", "properties": {"error": {"type": "string"}}},
    }


def describe_paths(sizes: Sizes, *, token: bool) -> dict[str, Any]:
    """Return the OpenAPI document."""

    def operation(summary: str, answer: dict[str, Any], body: dict[str, Any] | None = None) -> dict[str, Any]:
        statuses = {400: "The request is wrong; `error` says what and how to mend it."}
        statuses |= {401: "The token is missing or wrong."} if token else {}
        statuses |= (
            {413: "The request is too large.", 415: "It is not JSON.", 429: "Too many requests wait."} if body else {}
        )
        problem = {"content": {"application/json": {"schema": _ref("Error")}}}
        result: dict[str, Any] = {
            "summary": summary,
            "responses": {
                "200": {"description": "The answer.", "content": {"application/json": {"schema": answer}}},
                **{str(status): {"description": text, **problem} for status, text in statuses.items()},
            },
        }
        if body is not None:
            result["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
        return result

    anything = {"type": "object"}
    either = {"oneOf": [_ref("Known"), _ref("New")]}
    predictions = {"type": "object", "properties": {"predictions": {"type": "array", "items": _ref("Prediction")}}}
    paths = {
        "/predict": {
            "post": operation("Predict known nodes, or new ones with features and edges.", predictions, either)
        },
        "/embed": {"post": operation("Return the model's vector of each node.", anything, either)},
        "/explain": {"post": operation("Say which tokens a prediction depends on.", anything, _ref("Explain"))},
        "/schema": {"get": operation("Describe the run: task, classes, features.", anything)},
        "/health": {"get": operation("Say whether the server answers.", anything)},
        "/metrics": {"get": operation("Return counts for Prometheus, as text.", {"type": "string"})},
    }
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "VCR-Graphormer", "version": __version__},
        "paths": paths,
        "components": {"schemas": _schemas(sizes)},
    }
    if token:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
    return document


def describe_run(scorer: Scorer, sizes: Sizes) -> dict[str, Any]:
    """Return what the run predicts, what new nodes must have, and how large requests may be."""
    run, graph = scorer.run, scorer.run.original
    names = graph.feature_names
    columns = () if graph.schema is None else graph.schema.columns
    return {
        "task": run.task,
        "classes": output_names(run.graph, int(run.about["num_outputs"])),
        "named_nodes": graph.names is not None,
        "directed": graph.directed,
        "weighted": graph.weights is not None,
        "features": {
            "count": graph.num_features,
            "names": None if names is None else [str(name) for name in names[:_MOST_NAMES]],
            "sparse": bool(sp.issparse(graph.features)),
            "columns": [
                {"name": column.name, "type": column.type, "values": list(column.values)}
                for column in columns[:_MOST_NAMES]
            ],
        },
        "new_nodes": {"allowed": scorer.tokens.refusal is None, "reason": scorer.tokens.refusal},
        "limits": {"body_bytes": sizes.body, "nodes": sizes.nodes, "edges": sizes.edges},
    }
