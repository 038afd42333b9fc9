#!/usr/bin/env python3
"""Runs every golden vector beside this file against a second, naive implementation.

This is Tollgate's core written again from the words of README.md and ../redaction.md, with nothing but
Python's standard library (3.9 or later). It shares no code with the product, is slow where slow is clear,
and exists to show that the vectors can be run in another language and say what the words say. The word lists and
expressions of redaction are read from ../redaction.json, because there they are the specification.

    python3 spec/vectors/check.py

One line per suite, one block per failing case, and last a line "N passed, M failed". The exit code is 1 if
anything failed or nothing ran.
"""

import copy
import hashlib
import json
import re
import struct
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SIDE_EFFECTS = ["none", "auth_telemetry_write", "user_write", "secret", "runtime", "paper_trade", "live_trade"]
COST_EFFECTS = ["none", "api_cost", "search_cost", "venue_request_cost", "llm_cost"]


class Half(Exception):
    """A vector that is not understood in full: running it anyway would prove nothing."""


def members(obj, required, optional=()):
    """Every member must be known and every required one there; returns the object."""
    if not isinstance(obj, dict):
        raise Half(f"not an object: {obj!r}")
    unknown = [k for k in obj if k not in required and k not in optional]
    missing = [k for k in required if k not in obj]
    if unknown or missing:
        raise Half(f"unknown members {unknown}, missing members {missing}")
    return obj


# ---- strict reading ------------------------------------------------------------------------------------


class Refused(Exception):
    """What the strict reader says instead of a value."""

    def __init__(self, kind, path=()):
        super().__init__(kind)
        self.kind = kind
        self.pointer = "".join("/" + str(p).replace("~", "~0").replace("/", "~1") for p in path)


NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
STRING = re.compile(r'"((?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4}))*)"')
ESCAPE = re.compile(r"\\(?:u(....)|(.))")
ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
MAX_DEPTH = 128


class Reader:
    """JSON by hand: the standard module forgets repeated keys, and how a number was written."""

    def __init__(self, data):
        try:
            self.text = data.decode("utf-8")
        except UnicodeDecodeError:
            raise Refused("not_utf8")
        self.at = 0

    def document(self):
        value = self.value((), 0)
        self.blank()
        if self.at != len(self.text):
            raise Refused("syntax")
        return value

    def blank(self):
        while self.text[self.at:self.at + 1] in (" ", "\t", "\r", "\n"):
            self.at += 1

    def take(self, word):
        """True, and behind it, if this is what comes next."""
        if self.text.startswith(word, self.at):
            self.at += len(word)
            return True
        return False

    def value(self, path, depth):
        self.blank()
        for word, value in (("null", None), ("true", True), ("false", False)):
            if self.take(word):
                return value
        first = self.text[self.at:self.at + 1]
        if first == '"':
            return self.string()
        if first in ("[", "{") and depth == MAX_DEPTH:
            raise Refused("too_deep", path)
        if self.take("["):
            return self.array(path, depth + 1)
        if self.take("{"):
            return self.object(path, depth + 1)
        return self.number(path)

    def parts(self, close, path):
        """Stops before each item of an array or object, until it is closed."""
        self.blank()
        if self.take(close):
            return
        while True:
            yield
            self.blank()
            if self.take(close):
                return
            if not self.take(","):
                raise Refused("syntax", path)

    def array(self, path, depth):
        items = []
        for _ in self.parts("]", path):
            items.append(self.value(path + (len(items),), depth))
        return items

    def object(self, path, depth):
        found = {}
        for _ in self.parts("}", path):
            self.blank()
            key = self.string()
            if key in found:
                raise Refused("duplicate_key", path + (key,))
            self.blank()
            if not self.take(":"):
                raise Refused("syntax", path)
            found[key] = self.value(path + (key,), depth)
        return found

    def string(self):
        match = STRING.match(self.text, self.at)
        if not match:
            raise Refused("syntax")
        self.at = match.end()
        units = ESCAPE.sub(lambda e: chr(int(e[1], 16)) if e[1] else ESCAPES[e[2]], match[1])
        try:  # joins surrogate pairs; a surrogate alone is no character
            return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeDecodeError:
            raise Refused("syntax")

    def number(self, path):
        match = NUMBER.match(self.text, self.at)
        if not match:
            raise Refused("syntax", path)
        self.at = match.end()
        size = abs(float(match.group()))
        integer = match.group(1) is None and match.group(2) is None
        if size >= 2 ** 53 and (integer or size < 10 ** 21):
            raise Refused("unsafe_integer", path)
        if size == float("inf"):
            raise Refused("number_out_of_range", path)
        return float(match.group())


# ---- RFC 8785 ------------------------------------------------------------------------------------------


def written(number):
    """ECMAScript's Number::toString. repr() finds the same shortest digits; only the layout differs."""
    if number == 0:
        return "0"
    if number < 0:
        return "-" + written(-number)
    mantissa, _, exponent = repr(number).partition("e")
    whole, _, fraction = mantissa.partition(".")
    point = len(whole) + int(exponent or 0)
    digits = whole + fraction
    point -= len(digits) - len(digits.lstrip("0"))
    digits = digits.strip("0")
    if len(digits) <= point <= 21:
        return digits + "0" * (point - len(digits))
    if 0 < point <= 21:
        return digits[:point] + "." + digits[point:]
    if -6 < point <= 0:
        return "0." + "0" * -point + digits
    return digits[0] + ("." + digits[1:] if digits[1:] else "") + f"e{point - 1:+d}"


SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def quoted(text):
    return '"' + "".join(SHORT.get(c, f"\\u{ord(c):04x}" if c < " " else c) for c in text) + '"'


def canonical(value):
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (int, float)):
        return written(float(value))
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    keys = sorted(value, key=lambda k: k.encode("utf-16-be"))  # by UTF-16 code units, not code points
    return "{" + ",".join(quoted(k) + ":" + canonical(value[k]) for k in keys) + "}"


def sha256(text):
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def equal(a, b):
    """JSON equality: 5 is 5.0, but 1 is not true."""
    return canonical(a) == canonical(b)


# ---- redaction -----------------------------------------------------------------------------------------

RULES = json.loads((HERE.parent / "redaction.json").read_text(encoding="utf-8"))
PLACEHOLDERS = RULES["placeholders"]
FIELD = "[redacted:field]"
TOKEN_FORMATS = re.compile("|".join(f"(?:{f})" for f in RULES["tokenFormats"]))
KEY_FORMATS = re.compile("|".join(f"(?:{f})" for f in RULES["keyFormats"]))
CREDENTIALS = re.compile(RULES["credentials"])
PEM_BEGIN, PEM_END = re.compile(RULES["pem"]["begin"]), re.compile(RULES["pem"]["end"])
NAME_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")
QUOTES = "\"'`"


def words(name):
    """The words of a field name, without what follows its last letter and without a qualifier."""
    name = re.sub("[^A-Za-z]+$", "", name)
    name = re.sub("([a-z0-9])([A-Z])", r"\1 \2", name)
    name = re.sub("([A-Z])([A-Z][a-z])", r"\1 \2", name)
    found = [word.lower() for word in re.findall("[A-Za-z0-9]+", name)]
    if found and found[-1] in RULES["qualifiers"]:
        rest = re.sub("[^A-Za-z]+$", "", re.sub("[A-Za-z0-9]+$", "", name))
        found = [word.lower() for word in re.findall("[A-Za-z0-9]+", rest)] or found
    return found


def hides(name):
    if len(name.encode("utf-8")) > 256 or any(p in name for p in PLACEHOLDERS):
        return False
    found = words(name)
    if not found:
        return False
    return (found[-1] in RULES["lastWord"]
            or found[-1].endswith(tuple(RULES["lastWordEnding"]))
            or found[-2:] in RULES["lastTwoWords"]
            or len(found) == 1 and found[0] in RULES["wholeName"]
            or found[-1] == "token" and not (len(found) > 1 and found[-2] in RULES["harmlessTokens"]))


def between_placeholders(text, change):
    """Applies a stage to each stretch by itself; the placeholders pass unseen."""
    parts = re.split("(" + "|".join(map(re.escape, PLACEHOLDERS)) + ")", text)
    return "".join(part if i % 2 else change(part) for i, part in enumerate(parts))


def hide_pem(stretch):
    out, at = "", 0
    while True:
        begin = PEM_BEGIN.search(stretch, at)
        if not begin:
            return out + stretch[at:]
        end = PEM_END.search(stretch, begin.end())
        out += stretch[at:begin.start()] + "[redacted:pem]"
        at = end.end() if end else len(stretch)


def hide_formats(formats):
    def name(match):
        kind = {"tg_": "tollgate-key", "eyJ": "jwt"}.get(match.group()[:3], "provider-key")
        return f"[redacted:{kind}]"
    return lambda stretch: formats.sub(name, stretch)


def hide_credentials(stretch):
    def name(match):
        group = next(i for i in range(1, 6) if match.group(i) is not None)
        kind = {"b": "bearer", ":": "url-password"}.get(match.group()[0].lower(), "field")
        start, end = match.start(group) - match.start(), match.end(group) - match.start()
        return match.group()[:start] + f"[redacted:{kind}]" + match.group()[end:]
    return CREDENTIALS.sub(name, stretch)


def placeholder_at(text, at):
    return next((p for p in PLACEHOLDERS if text.startswith(p, at)), "")


def name_before(text, at, floor):
    for skipped in (" \t", "\"'`\\]["):
        farthest = max(at - 8, floor)
        while at > farthest and text[at - 1] in skipped:
            at -= 1
    end = at
    while at > floor and text[at - 1] in NAME_CHARS:
        at -= 1
    return at, text[at:end]


def is_header(name):
    return name.lower().endswith(("authorization", "cookie"))


def value_span(text, at, name, opener=("", 0)):
    """Where a value that may start at `at` really starts, and where it ends. `opener` is the quote directly
    before a header's name, with the number of backslashes before it."""
    while text[at:at + 1] in (" ", "\t"):
        at += 1
    slashes = run_of_backslashes(text[at:][::-1])
    quote = text[at + slashes:at + slashes + 1]
    quoted_value = bool(quote) and quote in QUOTES
    start = at + slashes + 1 if quoted_value else at
    enders = "\r\n" if is_header(name) else " \t\r\n\"'`&,;)}]<>|"
    end = start
    while end < len(text):
        if placeholder_at(text, end):
            end += len(placeholder_at(text, end))
            continue
        if quoted_value:
            if text[end] == quote and run_of_backslashes(text[:end]) % (2 * (slashes + 1)) == slashes:
                return start, max(start, end - slashes)
        elif text[end] in enders:
            break
        elif is_header(name):
            quote, run = opener
            if text[end] == quote and run_of_backslashes(text[:end]) % (2 * (run + 1)) == run:
                return start, max(start, end - run)
        elif text[end] == "\\" and text[end + 1:end + 2] in tuple(QUOTES):
            break
        end += 1
    return start, end


def run_of_backslashes(text):
    """How many backslashes `text` ends in."""
    return len(text) - len(text.rstrip("\\"))


def hide_assignments(text):
    out, copied, at, floor = "", 0, 0, 0
    while at < len(text):
        char, name, behind, opener = text[at], "", at + 1, ("", 0)
        if placeholder_at(text, at):
            at += len(placeholder_at(text, at))
            floor = at
            continue
        if char == "=" or char == ":" and text[at + 1:at + 2] != ":" and text[at - 1:at] != ":":
            start, name = name_before(text, at, floor)
            if start > floor and text[start - 1] in QUOTES:
                opener = text[start - 1], run_of_backslashes(text[:start - 1])
            while text[behind:behind + 1] in ("=", ">"):
                behind += 1
        elif char == ">":
            start, name = name_before(text, at, floor)
            if start + len(name) == at and text[start - 1:start] == "<" and 0 < len(name) <= 64 and hides(name):
                end = at + 1
                while end < len(text) and (placeholder_at(text, end) or text[end] != "<"):
                    end += len(placeholder_at(text, end)) or 1
                if end > at + 1:
                    if text[at + 1:end] not in PLACEHOLDERS:
                        out += text[copied:at + 1] + FIELD
                        copied = end
                    at = floor = end
                    continue
            name = ""
        elif char == "-" and (at == 0 or text[at - 1] not in NAME_CHARS):
            behind = first = at + (2 if text[at + 1:at + 2] == "-" else 1)
            while behind < len(text) and text[behind] in NAME_CHARS:
                behind += 1
            if text[behind:behind + 1] in (" ", "\t"):
                name = text[first:behind]
        at += 1
        if name and len(name) <= 64 and hides(name):
            start, end = value_span(text, behind, name, opener)
            if start < end:
                if text[start:end] not in PLACEHOLDERS:
                    out += text[copied:start] + FIELD
                    copied = end
                at = floor = end
    return out + text[copied:]


def redact_text(text):
    for stage in (hide_pem, hide_formats(TOKEN_FORMATS), hide_formats(KEY_FORMATS), hide_credentials):
        text = between_placeholders(text, stage)
    return hide_assignments(text)


def tells(value):
    return value is not None and not isinstance(value, bool) and value not in ("", FIELD)


def hides_next(item, is_pair):
    return isinstance(item, str) and hides(item) and (
        item.startswith("-") or is_pair and ("-" in item or is_header(item)))


def redact(value):
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, list):
        return [FIELD if i and tells(item) and hides_next(value[i - 1], len(value) == 2) else redact(item)
                for i, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    stay, move = {}, []
    names_secret = any(isinstance(value.get(m), str) and hides(value[m]) for m in ("name", "key", "header"))
    for key in sorted(value):  # Python compares texts by code points
        item = value[key]
        secret = hides(key) or key == "value" and names_secret
        item = FIELD if secret and tells(item) else redact(item)
        if redact_text(key) == key:
            stay[key] = item
        else:
            move.append((redact_text(key), item))
    for key, item in move:
        free, n = key, 1
        while free in stay:
            n += 1
            free = f"{key}#{n}"
        stay[free] = item
    return stay


# ---- JSON Schema, as much of it as the vectors use -----------------------------------------------------


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


TYPES = {
    "null": lambda v: v is None,
    "boolean": lambda v: isinstance(v, bool),
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "number": is_number,
    "integer": lambda v: is_number(v) and v % 1 == 0,
}
KEYWORDS = ("type", "properties", "required", "additionalProperties", "items", "enum")


def type_names(schema):
    names = schema.get("type", list(TYPES))
    return names if isinstance(names, list) else [names]


def is_schema(schema):
    if isinstance(schema, bool):
        return True
    if not isinstance(schema, dict) or any(name not in TYPES for name in type_names(schema)):
        return False
    inner = list(schema.get("properties", {}).values())
    inner += [schema[k] for k in ("items", "additionalProperties") if k in schema]
    return all(map(is_schema, inner))


def fits(value, schema):
    if isinstance(schema, bool):
        return schema
    members(schema, (), KEYWORDS)
    if not any(TYPES[name](value) for name in type_names(schema)):
        return False
    if "enum" in schema and not any(equal(value, one) for one in schema["enum"]):
        return False
    if isinstance(value, list):
        return all(fits(item, schema.get("items", True)) for item in value)
    if isinstance(value, dict):
        properties, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
        return (all(key in value for key in schema.get("required", []))
                and all(fits(item, properties.get(key, rest)) for key, item in value.items()))
    return True


# ---- manifest ------------------------------------------------------------------------------------------

REQUIRED = ("name", "status", "stability", "authRequired", "permissions", "access", "sideEffect", "costEffect",
            "risk", "schema", "agent", "traceEvents", "replay")
OPTIONAL = ("inputSchema", "outputSchema", "http", "sdk", "retry", "description")
RESERVED = ("market.related", "auth.status", "investigations.create", "intents.propose", "webhooks.create",
            "get_world_state", "get_regime_history")
STATUSES = ("implemented", "deferred", "quarantined", "hallucination_risk")
TEXT, FLAG = TYPES["string"], TYPES["boolean"]


def texts(value):
    return isinstance(value, list) and all(map(TEXT, value))


SHAPES = {
    "name": TEXT, "status": STATUSES.__contains__, "stability": TEXT, "authRequired": FLAG, "permissions": texts,
    "access": TYPES["object"], "access.anonymousAllowed": FLAG, "sideEffect": SIDE_EFFECTS.__contains__,
    "costEffect": COST_EFFECTS.__contains__, "risk": texts, "schema": TEXT, "agent": TYPES["object"],
    "agent.callable": FLAG, "agent.defaultEnabled": FLAG, "agent.name": TEXT, "agent.compatName": TEXT,
    "traceEvents": texts, "replay": TYPES["object"], "http": TYPES["object"], "http.path": TEXT,
    "sdk": TYPES["object"], "retry": TEXT, "description": TEXT,
}


def patched(target, patch):
    """RFC 7386."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = patched(result.get(key), value)
    return result


def member(tool, path, default=None):
    for step in path.split("."):
        if not isinstance(tool, dict) or step not in tool:
            return default
        tool = tool[step]
    return tool


def derived_effects(does):
    """The effects that a tool with these behaviours must declare."""
    sides = ["none"]
    sides += {"none": [], "paper": ["paper_trade"], "live": ["live_trade"]}[does["trade"]]
    sides += {"none": [], "auth_telemetry": ["auth_telemetry_write"], "user_state": ["user_write"],
              "runtime": ["runtime"]}[does["mutation"]]
    sides += ["secret"] if does["secrets"] else []
    cost = ("llm_cost" if does["llm"] else "venue_request_cost" if does["venue"]
            else "search_cost" if does["search"] else "api_cost" if does["paidUpstream"] or does["userData"]
            else "none")
    return max(sides, key=SIDE_EFFECTS.index), cost


BEHAVIOURS = ("accountContext", "userData", "paidUpstream", "search", "llm", "venue", "mutation", "secrets", "trade")


def tool_violations(tool, does=None):
    """(field, rule) for each broken rule of one entry; without `does` the behaviours are not known."""
    first = [(field, "missing_field") for field in REQUIRED if field not in tool]
    if "access" in tool and member(tool, "access.anonymousAllowed") is None:
        first.append(("access.anonymousAllowed", "missing_field"))
    first += [(field, "unknown_field") for field in tool if field not in REQUIRED + OPTIONAL]
    name = tool.get("name")
    if isinstance(name, str):
        if name in RESERVED or name.startswith("events."):
            first.append(("name", "reserved_name"))
        elif not re.fullmatch(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+", name) or len(name) > 128:
            first.append(("name", "canonical_name"))
    if first:
        return first
    found = [(field, "shape") for field, good in SHAPES.items()
             if member(tool, field) is not None and not good(member(tool, field))]
    if found:
        return found

    auth, side, cost = tool["authRequired"], tool["sideEffect"], tool["costEffect"]
    user_data = "user_data" in tool["permissions"]
    anonymous, live = tool["access"]["anonymousAllowed"], side == "live_trade"
    compat = member(tool, "agent.compatName")
    schemas = [field for field in ("inputSchema", "outputSchema") if field in tool]
    broken = [
        ("agent.compatName", "compat_name", compat not in (None, name.replace(".", "_"))),
        ("agent.name", "agent_name", member(tool, "agent.name") != name),
        ("permissions", "has_permission", not tool["permissions"]),
        ("authRequired", "anonymous_needs_no_auth", anonymous and auth),
        ("sideEffect", "anonymous_has_no_side_effect", anonymous and side != "none"),
        ("costEffect", "anonymous_has_no_cost", anonymous and cost != "none"),
        ("permissions", "anonymous_has_no_user_data", anonymous and user_data),
        ("authRequired", "user_data_needs_auth", user_data and not auth),
        ("costEffect", "user_data_has_cost", user_data and cost == "none"),
        ("authRequired", "live_trade_needs_auth", live and not auth),
        ("agent.defaultEnabled", "live_trade_is_opt_in", live and member(tool, "agent.defaultEnabled") is not False),
        ("retry", "trade_is_not_repeated", side in ("paper_trade", "live_trade") and tool.get("retry") == "idempotent"),
        ("http.path", "http_path", "http" in tool and not str(member(tool, "http.path")).startswith("/")),
    ]
    for field in schemas:
        wrong_type = field == "inputSchema" and member(tool, "inputSchema.type") != "object"
        broken.append((field, "usable_schema", wrong_type or not is_schema(tool[field])))
    if does is not None:
        members(does, BEHAVIOURS)
        derived = derived_effects(does)
        broken += [
            ("sideEffect", "behaviour_side_effect", side != derived[0]),
            ("costEffect", "behaviour_cost_effect", cost != derived[1]),
            ("permissions", "behaviour_user_data", user_data != does["userData"]),
            ("authRequired", "behaviour_account_context", does["accountContext"] and not auth),
        ]
    return [(field, rule) for field, rule, holds in broken if holds]


def document_violations(document):
    members(document, ("schemaVersion", "mode", "tools"))
    found, names, compats = [], set(), set()
    if document["schemaVersion"] != "0.3.0-draft":
        found.append(("schemaVersion", "schema_version"))
    for tool in document["tools"]:
        found += tool_violations(tool)
        if document["mode"] == "implemented" and tool.get("status") != "implemented":
            found.append(("status", "mode"))
        for field, seen in (("name", names), ("agent.compatName", compats)):
            value = member(tool, field)
            if value in seen:
                found.append((field, "unique_name" if field == "name" else "unique_compat_name"))
            seen.update([value] if value is not None else [])
    return found


# ---- preflight and policy ------------------------------------------------------------------------------


def preflight(tool, surface, mode, has_key):
    free = (tool["access"]["anonymousAllowed"] and not tool["authRequired"] and tool["sideEffect"] == "none"
            and tool["costEffect"] == "none" and "user_data" not in tool["permissions"])
    if mode != "live" or has_key or surface == "sdk" and free:
        return None
    return "MISSING_API_KEY"


POLICY = ("allow", "deny", "maxSideEffect", "maxCostEffect", "ask", "trade")
TRADE_FLAGS = ("requireLimitPrice", "dryRunOnly", "requireJurisdiction")
NO_LIMITS = ("allowAutoExecute", "allowRuntimeStart", "jurisdiction")
TRADE = TRADE_FLAGS + NO_LIMITS + ("allowedVenues", "allowedTickers", "maxOrderCostCents", "maxQuantity",
                                   "blockedJurisdictions", "confirmToken")
TESTS = ("exists", "equals", "notEquals", "oneOf", "notOneOf", "above", "below", "startsWith", "notStartsWith",
         "contains")
NOWHERE = object()


def layers_of(case):
    """The layers that count, in order, as (name, policy); defaults filled in."""
    given = members(case["layers"], (), ("server", "key", "session", "call"))
    for policy in given.values():
        members(policy, (), POLICY)
        members(policy.get("trade", {}), (), TRADE)
    layers = [("server", {"maxSideEffect": "paper_trade", "maxCostEffect": "llm_cost", **given.get("server", {})})]
    if "key" not in given and "scopes" in case["caller"]["identity"]:
        given = {**given, "key": {"maxSideEffect": "none", "maxCostEffect": "api_cost"}}
    if "key" in given:
        given = {**given, "key": {"maxSideEffect": "paper_trade", **given["key"]}}
    return layers + [(name, given[name]) for name in ("key", "session", "call") if name in given]


def tool_matches(pattern, name):
    return pattern == name or pattern.endswith(".*") and name.startswith(pattern[:-1])


def grants(entry, name):
    """Does an entry mean the tool `name`, wherever it stands?"""
    if entry.startswith("tool:"):
        return tool_matches(entry[len("tool:"):], name)
    return entry.endswith(".*") and tool_matches(entry, name)


def means_permission(entry, permission):
    return not entry.startswith("tool:") and tool_matches(entry, permission)


def resolve(document, pointer):
    """RFC 6901."""
    for step in pointer.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(document, dict) and step in document:
            document = document[step]
        elif isinstance(document, list) and re.fullmatch("0|[1-9][0-9]*", step) and int(step) < len(document):
            document = document[int(step)]
        else:
            return NOWHERE
    return document


def condition_holds(condition, document):
    """What cannot be tested holds: a question too many is better than one too few."""
    members(condition, ("pointer",), TESTS)
    (test, wanted), = [(k, v) for k, v in condition.items() if k != "pointer"]
    value = resolve(document, condition["pointer"])
    if test == "exists":
        return wanted == (value is not NOWHERE)
    if value is NOWHERE:
        return True
    if test in ("equals", "notEquals"):
        return equal(value, wanted) == (test == "equals")
    if test in ("oneOf", "notOneOf"):
        return any(equal(value, one) for one in wanted) == (test == "oneOf")
    if test in ("above", "below"):
        return not is_number(value) or (value > wanted if test == "above" else value < wanted)
    if test == "contains":
        return not isinstance(value, str) or wanted in value
    return not isinstance(value, str) or value.startswith(wanted) == (test == "startsWith")


def at_least(tool, effect):
    return SIDE_EFFECTS.index(tool["sideEffect"]) >= SIDE_EFFECTS.index(effect)


def ask_matches(entry, tool, document):
    members(entry, (), ("tool", "permission", "sideEffect", "input"))
    return (("tool" not in entry or tool_matches(entry["tool"], tool["name"]))
            and ("permission" not in entry or entry["permission"] in tool["permissions"])
            and ("sideEffect" not in entry or at_least(tool, entry["sideEffect"]))
            and ("input" not in entry or condition_holds(entry["input"], document)))


def all_given(document, *names):
    return [document[name] for name in names if document.get(name) is not None]


ORDER_FIELDS = ("quantity", "targetQuantity", "limitPrice", "maxPrice", "action", "direction")


def place_of(value):
    """A region code in capitals; None for a text of blanks, False for what is no region code."""
    if value is None or isinstance(value, str) and not value.strip(" \t\r\n"):
        return None
    code = value.strip(" \t\r\n").upper() if isinstance(value, str) and value.isascii() else ""
    return code if re.fullmatch("[A-Z]{2}(-[A-Z0-9]{1,3})?", code) else False


def whole(value, low, high):
    return is_number(value) and value % 1 == 0 and low <= value <= high


def overlaps(place, blocked):
    """One is the other, or a part of it."""
    return place == blocked or place.startswith(blocked + "-") or blocked.startswith(place + "-")


def violated(trade, kinds, live, given, known, places):
    """The first guardrail of one layer's `trade` section that does not hold, or None."""
    order, said = "order" in kinds, given.get("jurisdiction")
    place, good_place = place_of(said), place_of(said) is not False
    quantities = all_given(given, "quantity", "targetQuantity")
    prices = all_given(given, "limitPrice", "maxPrice")
    good_quantity = bool(quantities) and all(whole(q, 0, float("inf")) for q in quantities)
    good_prices = all(whole(p, 1, 99) for p in prices)
    traded = [given[k] for k in ("ticker", "marketId", "tokenId") if given.get(k) is not None]

    def allowed(name):
        return isinstance(name, str) and any(
            name.lower().startswith(t[:-1].lower()) if t.endswith("*") else name.lower() == t.lower()
            for t in trade["allowedTickers"])

    def affordable():
        if not good_quantity or not good_prices:
            return False
        each = max((p if given.get("action") == "buy" else max(p, 100 - p) for p in prices), default=100)
        return max(quantities) * each <= trade["maxOrderCostCents"]

    rules = [
        ("allowedVenues", order, lambda: isinstance(given.get("venue"), str)
            and given["venue"].lower() in [v.lower() for v in trade["allowedVenues"]]),
        ("allowedTickers", order, lambda: traded and all(map(allowed, traded))),
        ("maxOrderCostCents", order, affordable),
        ("maxQuantity", order, lambda: good_quantity and max(quantities) <= trade["maxQuantity"]),
        ("requireLimitPrice", order, lambda: prices and good_prices),
        ("allowRuntimeStart", "start" in kinds, lambda: trade.get("allowRuntimeStart") is True),
        ("dryRunOnly", order and live, lambda: given.get("dryRun") is True),
        ("requireJurisdiction", order, lambda: good_place and known),
        ("jurisdiction", order or "cancellation" in kinds, lambda: good_place
            and (place is None or place == place_of(trade["jurisdiction"]))),
        ("blockedJurisdictions", order, lambda: good_place and known
            and not any(overlaps(p, place_of(b)) for p in places for b in trade["blockedJurisdictions"])),
        ("confirmToken", order, lambda: isinstance(given.get("confirm"), str)
            and given["confirm"] == trade["confirmToken"]),
    ]
    for name, concerns, holds in rules:
        stated = trade.get(name) is True if name in TRADE_FLAGS else name in trade or name == "allowRuntimeStart"
        if name == "jurisdiction":
            stated = place_of(trade.get(name)) is not None
        if stated and concerns and not holds():
            return name
    return None


def trade_guardrail(tool, layers, given):
    """(guardrail, layer or None) if one is violated, else None."""
    name, live, kinds = tool["name"], tool["sideEffect"] == "live_trade", set()
    if name.startswith("runtime.") and at_least(tool, "runtime"):
        kinds.add("start")
    may_trade = {"trade", "execution"} & set(tool["permissions"])
    if at_least(tool, "paper_trade") or at_least(tool, "user_write") and may_trade:
        takes_back = name.endswith(".cancel") and not all_given(given, *ORDER_FIELDS)
        kinds.add("cancellation" if takes_back else "order")
    if not kinds:
        return None
    trades = [(layer, policy["trade"]) for layer, policy in layers if "trade" in policy]
    granted = [trade for layer, trade in trades if layer in ("server", "key")]
    if live and not any(k not in NO_LIMITS and (k not in TRADE_FLAGS or v is True)
                        and (k, v) != ("blockedJurisdictions", [])
                        for trade in granted for k, v in trade.items()):
        return "trade", None
    if kinds != {"start"} and given.get("autoExecute") is not None and given["autoExecute"] is not False:
        if not granted:
            return "allowAutoExecute", None
        for layer, trade in trades:
            if trade.get("allowAutoExecute") is not True:
                return "allowAutoExecute", layer
        if any(policy.get("maxSideEffect", "live_trade") != "live_trade" for _, policy in layers):
            return "allowAutoExecute", None
    own = [place_of(given.get("jurisdiction"))] if place_of(given.get("jurisdiction")) else []
    stated = [place_of(trade.get("jurisdiction")) for _, trade in trades]
    for i, (layer, trade) in enumerate(trades):
        known = own + [p for p in stated[:i + 1] if p is not None]  # this layer's and those before it
        guardrail = violated(trade, kinds, live, given, known, own + [p for p in stated if p is not None])
        if guardrail:
            return guardrail, layer
    return None


FORBIDDEN = ("unguarded_live_trade", "credential_exfiltration", "unconfined_execution")


def refusals(tool, caller, layers, given):
    """Each step with None, or with what refuses there: (code, layer or None, guardrail or None)."""
    yield "existence", None if tool else ("UNKNOWN_TOOL", None, None)
    name, permissions, identity = tool["name"], tool["permissions"], caller["identity"]
    anonymous, live = identity == "anonymous", caller["mode"] == "live"

    def refuse(code, when):
        return (code, None, None) if when else None

    def by_layer(code, test):
        return next(((code, layer, None) for layer, policy in layers if test(policy)), None)

    def exceeded(ceiling, effect, ranks):
        return lambda policy: ceiling in policy and ranks.index(policy[ceiling]) < ranks.index(tool[effect])

    def not_granted(policy):
        allow = policy.get("allow")
        return allow is not None and not (
            any(grants(entry, name) for entry in allow)
            or all(any(means_permission(entry, p) for entry in allow) for p in permissions))

    yield "status", refuse("TOOL_NOT_ACTIVE", tool["status"] != "implemented")
    yield "agent_callable", refuse(
        "TOOL_NOT_CALLABLE", caller["surface"] == "agent" and not tool["agent"]["callable"])
    yield "identity", (
        refuse("MISSING_API_KEY", preflight(tool, caller["surface"], caller["mode"], not anonymous))
        or refuse("INVALID_API_KEY", not anonymous and "invalid" in identity)
        or refuse("SCOPE_MISSING", not anonymous and live and "call" not in identity["scopes"]))
    yield "forbidden_risk", refuse("FORBIDDEN_RISK", any(risk in FORBIDDEN for risk in tool["risk"]))
    yield "deny", by_layer("PERMISSION_DENIED", lambda policy: any(
        entry == name or grants(entry, name) or any(means_permission(entry, p) for p in permissions)
        for entry in policy.get("deny", [])))
    yield "allow", by_layer("PERMISSION_NOT_GRANTED", not_granted)
    yield "max_side_effect", by_layer("SIDE_EFFECT_EXCEEDED", exceeded("maxSideEffect", "sideEffect", SIDE_EFFECTS))
    yield "max_cost_effect", by_layer("COST_EFFECT_EXCEEDED", exceeded("maxCostEffect", "costEffect", COST_EFFECTS))
    user_data = "user_data" in permissions
    yield "user_data", (refuse("MISSING_API_KEY", user_data and live and anonymous)
                        or refuse("TOOL_NOT_CALLABLE", user_data and not tool["authRequired"]))
    yield "input", refuse("INVALID_INPUT", not isinstance(given, dict) or not is_taken(given)
                          or not fits(given, tool.get("inputSchema", True)))
    guardrail = trade_guardrail(tool, layers, given)
    yield "trade_guardrails", guardrail and ("TRADE_GUARDRAIL", guardrail[1], guardrail[0])


def is_taken(value):
    """Does strict reading take the text of this value?"""
    try:
        Reader(json.dumps(value).encode()).document()
        return True
    except Refused:
        return False


def decide(case, tools):
    """decision, code, guardrail and explanation of one case."""
    caller, given = members(case["caller"], ("surface", "mode", "identity")), case["input"]
    if caller["identity"] != "anonymous":
        members(caller["identity"], (), ("invalid", "scopes"))
    tool, layers, explain = tools.get(case["tool"]), layers_of(case), []
    for step, refusal in refusals(tool, caller, layers, given):
        if refusal:
            code, layer, guardrail = refusal
            return ["deny", code, guardrail, explain + [[step, "refuse"] + ([layer] if layer else [])]]
        explain.append([step, "pass"])
    for layer, policy in layers:
        if any(ask_matches(entry, tool, given) for entry in policy.get("ask", [])):
            return ["pending", None, None, explain + [["approval", "ask", layer]]]
    return ["approve", None, None, explain + [["approval", "pass"]]]


# ---- errors --------------------------------------------------------------------------------------------

STATUS = {
    "INVALID_REQUEST": 400, "MISSING_API_KEY": 401, "INVALID_API_KEY": 401, "SCOPE_MISSING": 403,
    "UNKNOWN_TOOL": 404, "NOT_FOUND": 404, "TOOL_NOT_ACTIVE": 409, "TOOL_NOT_CALLABLE": 403,
    "FORBIDDEN_RISK": 403, "PERMISSION_DENIED": 403, "PERMISSION_NOT_GRANTED": 403, "SIDE_EFFECT_EXCEEDED": 403,
    "COST_EFFECT_EXCEEDED": 403, "INVALID_INPUT": 422, "TRADE_GUARDRAIL": 403, "CAPABILITY_MISSING": 403,
    "APPROVAL_DENIED": 403, "BUDGET_DENIED": 429, "CONFLICT": 409, "OUTCOME_UNKNOWN": 409, "REPLAY_MISS": 404,
    "PAYLOAD_TOO_LARGE": 413, "TOOL_FAILED": 502, "TIMEOUT": 504, "CANCELLED": 499, "SANDBOX_UNAVAILABLE": 503,
    "LEDGER_UNAVAILABLE": 503, "HALTED": 503, "INTERNAL": 500, "GATE_UNAVAILABLE": None,
}
REASONS = {
    "hard_limit_reached": "BUDGET_DENIED", "risk_too_high": "BUDGET_DENIED", "policy_violation": "BUDGET_DENIED",
    "defer_until_reset": "BUDGET_DENIED", "unmapped_workload": "BUDGET_DENIED", "approval_required": None,
    "daemon_unreachable": "GATE_UNAVAILABLE",
}


def error_class(code):
    if code == "GATE_UNAVAILABLE":
        return "ProviderError"
    return "".join(word.capitalize() for word in code.split("_")) + "Error"


# ---- the suites: a function for each kind of case gives (expected, got) ---------------------------------


def number_case(case, _):
    members(case, ("bits", "written"))
    return case["written"], written(struct.unpack(">d", bytes.fromhex(case["bits"]))[0])


def canonical_case(case, _):
    source = "hex" if "hex" in case else "text"
    members(case, ("name", source) + (("error",) if "error" in case else ("canonical", "sha256")))
    try:
        data = bytes.fromhex(case["hex"]) if source == "hex" else case["text"].encode("utf-8")
        form = canonical(Reader(data).document())
        got = {"canonical": form, "sha256": sha256(form)}
    except Refused as refusal:
        got = {"kind": refusal.kind, "pointer": refusal.pointer}
    if "error" not in case:
        return {k: case[k] for k in ("canonical", "sha256")}, got
    expected = dict(members(case["error"], ("kind", "pointer")))
    if expected["kind"] in ("syntax", "too_deep") and "kind" in got:
        got["pointer"] = expected["pointer"]
    return expected, got


def redaction_case(case, _):
    source, target = ("text", "expectedText") if "text" in case else ("input", "expected")
    members(case, ("name", source, target))
    once = redact(case[source])
    return ({"once": case[target], "twice": case[target], "expected again": case[target]},
            {"once": once, "twice": redact(once), "expected again": redact(case[target])})


def input_hash_case(case, _):
    members(case, ("name", "input", "hashed", "inputHash"))
    form = canonical(redact(case["input"]))
    return [case["hashed"], case["inputHash"]], [form, sha256(form)]


def manifest_case(case, suite):
    expected = sorted((v["field"], v["rule"]) for v in case["violations"] if members(v, ("field", "rule")))
    if "manifest" in case:
        members(case, ("name", "manifest", "violations"))
        return expected, sorted(document_violations(case["manifest"]))
    members(case, ("name", "tool", "violations"), ("behaviours",))
    does = patched(suite["behaviours"], case.get("behaviours", {}))
    return expected, sorted(tool_violations(patched(suite["base"], case["tool"]), does))


def preflight_case(case, suite):
    members(case, ("name", "tool", "surface", "mode", "hasKey", "error"))
    tools = {tool["name"]: tool for tool in suite["tools"]}
    return case["error"], preflight(tools[case["tool"]], case["surface"], case["mode"], case["hasKey"])


def policy_case(case, suite):
    members(case, ("name", "tool", "caller", "layers", "input", "decision", "code", "explain"), ("guardrail",))
    tools = {tool["name"]: tool for tool in suite["tools"]}
    return [case["decision"], case["code"], case.get("guardrail"), case["explain"]], decide(case, tools)


def code_case(case, suite):
    members(case, ("code", "status", "class"))
    missing = sorted(set(STATUS) - {c["code"] for c in suite["codes"]})  # a table with holes fails as a whole
    return [case["status"], case["class"], []], [STATUS[case["code"]], error_class(case["code"]), missing]


def reason_case(case, suite):
    members(case, ("reason", "code"))
    missing = sorted(set(REASONS) - {c["reason"] for c in suite["reasons"]})
    code = REASONS.get(case["reason"], case["reason"].upper())
    return [case["code"], True, []], [code, code is None or code in STATUS, missing]


# Per suite: its lists of cases with the function that runs them, and what else the file holds.
SUITES = {
    "canonical": ({"numbers": number_case, "cases": canonical_case}, ()),
    "redaction": ({"cases": redaction_case}, ()),
    "input-hash": ({"cases": input_hash_case}, ()),
    "manifest": ({"cases": manifest_case}, ("base", "behaviours")),
    "preflight": ({"cases": preflight_case}, ("tools",)),
    "policy": ({"cases": policy_case}, ("tools",)),
    "errors": ({"codes": code_case, "reasons": reason_case}, ()),
}


# ---- running -------------------------------------------------------------------------------------------


def no_repeats(pairs):
    if len({key for key, _ in pairs}) != len(pairs):
        raise Half(f"repeated key among {[key for key, _ in pairs]}")
    return dict(pairs)


def load(path):
    """The suite in a file as a list of (name, function, case, suite)."""
    suite = json.loads(path.read_bytes().decode("utf-8"), object_pairs_hook=no_repeats)
    name = suite.get("suite")
    if name not in SUITES or name != path.stem or suite.get("version") != 1:
        raise Half(f"unknown suite {name!r}, version {suite.get('version')!r}")
    lists, others = SUITES[name]
    members(suite, ("suite", "version", *lists, *others))
    cases = []
    for key, run in lists.items():
        names = [next((str(c[k]) for k in ("name", "bits", "reason", "code") if k in c), "?") for c in suite[key]]
        if not names or len(set(names)) != len(names):
            raise Half(f"{key}: none at all, or two of the same name")
        cases += [(label, run, case, suite) for label, case in zip(names, suite[key])]
    return cases


def run_suite(path):
    """(number passed, failures as (case, expected, got)). Whatever is wrong with one file or case, the
    others are still run."""
    passed, failures = 0, []
    try:
        cases = load(path)
    except Exception as problem:
        return 0, [("(the file)", "a suite", f"{type(problem).__name__}: {problem}")]
    for name, run, case, suite in cases:
        try:
            expected, got = (json.dumps(side, ensure_ascii=False, sort_keys=True) for side in run(case, suite))
        except Exception as problem:
            expected, got = "a case that can be run", f"{type(problem).__name__}: {problem}"
        if expected == got:
            passed += 1
        else:
            failures.append((name, expected, got))
    return passed, failures


def main():
    passed = failed = 0
    paths = {HERE / f"{name}.json" for name in SUITES} | set(HERE.glob("*.json"))  # an absent suite fails too
    for path in sorted(paths):
        good, failures = run_suite(path)
        print(f"{path.stem}: {good} passed, {len(failures)} failed")
        for name, expected, got in failures:
            print(f"  FAILED {name}\n    expected {expected}\n    got      {got}")
        passed, failed = passed + good, failed + len(failures)
    print(f"{passed} passed, {failed} failed")
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
