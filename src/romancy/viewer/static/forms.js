// A form built from JSON schemas. Each field reads its own value, and shows what is wrong with it.
//
// `make(...)` returns {element, read}; `read()` returns the value, `undefined` if it is left out, or throws.

class FieldError extends Error {}
const MAX_DEPTH = 5;

export function make(name, schema, { required = true, value, defs = schema.$defs ?? {}, depth = 0 } = {}) {
  const meant = resolve(schema, defs);
  const options = { required, value: value ?? meant.default, defs, depth };
  if (depth > MAX_DEPTH) return json(name, meant, options);
  if (meant.const !== undefined) return choice(name, { ...meant, enum: [meant.const] }, options);
  if (meant.enum) return choice(name, meant, options);
  const kinds = { string: text, integer: number, number, boolean: flag, object, array: list };
  return (kinds[meant.type] ?? json)(name, meant, options);
}

// Resolves references and "X or null". Any other choice of types is entered as JSON.
function resolve(schema, defs) {
  if (schema.$ref) {
    const found = defs[schema.$ref.split("/").pop()] ?? {};
    return resolve({ ...found, ...without(schema, "$ref") }, defs);
  }
  const real = (schema.anyOf ?? []).filter((each) => each.type !== "null");
  if (schema.anyOf && real.length === 1) {
    return { ...resolve(real[0], defs), ...without(schema, "anyOf"), nullable: real.length < schema.anyOf.length };
  }
  return schema.allOf?.length === 1 ? resolve({ ...schema.allOf[0], ...without(schema, "allOf") }, defs) : schema;
}

const without = (object, name) => Object.fromEntries(Object.entries(object).filter(([key]) => key !== name));

function field(name, schema, { required }, control) {
  const element = document.createElement("label");
  element.className = "field";
  const title = document.createElement("span");
  title.className = "name";
  title.textContent = name;
  const more = document.createElement("span");
  more.className = "dim";
  more.textContent = ` ${[kindOf(schema), required && !schema.nullable ? "" : "optional"].filter(Boolean).join(", ")}`;
  title.append(more);
  const hint = document.createElement("span");
  hint.className = "hint";
  hint.textContent = schema.description ?? "";
  element.append(title, control, hint);
  control.setAttribute("aria-label", name);
  return {
    element,
    fail(problem) {
      element.classList.add("bad");
      hint.textContent = problem;
      throw new FieldError(`${name}: ${problem}`);
    },
    pass(value) {
      element.classList.remove("bad");
      hint.textContent = schema.description ?? "";
      return value;
    },
  };
}

const kindOf = (schema) => schema.format ?? schema.type ?? (schema.enum ? "" : "JSON");

// An empty field: left out, null, or an error.
function readEmpty(made, schema, { required }) {
  if (!required) return made.pass(undefined);
  return schema.nullable ? made.pass(null) : made.fail("this field is required");
}

const inputs = { date: "date", "date-time": "datetime-local", time: "time", email: "email", uri: "url", password: "password" };

function text(name, schema, options) {
  const long = !schema.format && (schema.maxLength ?? 0) > 200;
  const input = document.createElement(long ? "textarea" : "input");
  if (!long) input.type = inputs[schema.format] ?? "text";
  if (input.type === "datetime-local" || input.type === "time") input.step = 1;
  if (options.value !== undefined && options.value !== null) input.value = options.value;
  const made = field(name, schema, options, input);
  const empty = () => input.value === "" && (schema.format || !options.required || schema.nullable);
  return { element: made.element, read: () => (empty() ? readEmpty(made, schema, options) : made.pass(textValue(input, schema))) };
}

// A form's date and time has no zone: take it as the visitor's local time.
function textValue(input, schema) {
  return schema.format === "date-time" ? new Date(input.value).toISOString() : input.value;
}

function number(name, schema, options) {
  const input = document.createElement("input");
  input.inputMode = schema.type === "integer" ? "numeric" : "decimal";
  if (options.value !== undefined && options.value !== null) input.value = options.value;
  const made = field(name, schema, options, input);
  const form = schema.type === "integer" ? /^[+-]?\d+$/ : /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;
  function read() {
    const given = input.value.trim();
    if (given === "") return readEmpty(made, schema, options);
    if (!form.test(given)) return made.fail(schema.type === "integer" ? "must be a whole number" : "must be a number");
    return made.pass(exact(given));
  }
  return { element: made.element, read };
}

// Integers that JavaScript can't represent are sent as text; the server parses them.
const exact = (given) => (/^[+-]?\d+$/.test(given) && !Number.isSafeInteger(Number(given)) ? given : Number(given));

function flag(name, schema, options) {
  if (schema.nullable) return choice(name, { ...schema, enum: [true, false] }, options);
  const input = document.createElement("input");
  input.type = "checkbox";
  input.checked = options.value === true;
  const made = field(name, schema, { ...options, required: true }, input);
  return { element: made.element, read: () => made.pass(input.checked) };
}

function choice(name, schema, options) {
  const select = document.createElement("select");
  const choices = schema.enum.map((each) => [typeof each === "string" ? each : JSON.stringify(each), each]);
  if (!options.required || schema.nullable) choices.unshift(["", undefined]);
  choices.forEach(([label], index) => select.add(new Option(label, index)));
  const at = choices.findIndex(([, each]) => each !== undefined && each === options.value);
  select.selectedIndex = Math.max(0, at);
  const made = field(name, schema, options, select);
  function read() {
    const value = choices[select.selectedIndex][1];
    return value === undefined ? readEmpty(made, schema, options) : made.pass(value);
  }
  return { element: made.element, read };
}

function json(name, schema, options) {
  const area = document.createElement("textarea");
  area.rows = 3;
  area.spellcheck = false;
  area.placeholder = "JSON";
  if (options.value !== undefined) area.value = JSON.stringify(options.value, null, 2);
  const made = field(name, schema, options, area);
  function read() {
    if (area.value.trim() === "") return readEmpty(made, schema, options);
    try {
      return made.pass(JSON.parse(area.value));
    } catch (error) {
      return made.fail(`not valid JSON: ${error.message}`);
    }
  }
  return { element: made.element, read };
}

function group(name, schema) {
  const element = document.createElement("fieldset");
  const legend = document.createElement("legend");
  legend.textContent = name;
  element.append(legend);
  if (schema.description) {
    const about = document.createElement("p");
    about.className = "note";
    about.textContent = schema.description;
    element.append(about);
  }
  return element;
}

function object(name, schema, options) {
  const properties = Object.entries(schema.properties ?? {});
  if (!properties.length) return json(name, schema, options);
  const element = group(name, schema);
  const given = options.value ?? {};
  const parts = properties.map(([key, inner]) => {
    const required = (schema.required ?? []).includes(key);
    const made = make(key, inner, { required, value: given[key], defs: options.defs, depth: options.depth + 1 });
    element.append(made.element);
    return [key, made];
  });
  function read() {
    const found = parts.map(([key, made]) => [key, made.read()]).filter(([, value]) => value !== undefined);
    return found.length || options.required ? Object.fromEntries(found) : undefined;
  }
  return { element, read };
}

function list(name, schema, options) {
  if (!schema.items || schema.prefixItems) return json(name, schema, options);
  const element = group(name, schema);
  const more = document.createElement("button");
  more.type = "button";
  more.textContent = "Add";
  more.setAttribute("aria-label", `Add to ${name}`);
  const items = new Map();
  element.append(more);
  function add(value) {
    const made = make(`${name} ${items.size + 1}`, schema.items, { value, defs: options.defs, depth: options.depth + 1 });
    const row = document.createElement("div");
    row.className = "item";
    const less = document.createElement("button");
    less.type = "button";
    less.className = "quiet";
    less.textContent = "Remove";
    less.addEventListener("click", () => (items.delete(row), row.remove()));
    row.append(made.element, less);
    items.set(row, made);
    more.before(row);
  }
  for (const value of options.value ?? []) add(value);
  more.addEventListener("click", () => add());
  return { element, read: () => [...items.values()].map((made) => made.read()) };
}
