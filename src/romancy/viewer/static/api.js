// The control API, and helpers that every module needs.
export const root = document.documentElement.dataset.root;

export const part = (text) => encodeURIComponent(text);

// Posts to the control API in the visitor's session. Throws the error message of the server.
export async function post(path, body, type = "application/json") {
  const response = await fetch(root + path, {
    method: "POST",
    headers: { "content-type": type },
    body: JSON.stringify(body),
    credentials: "same-origin",
  });
  if (response.status === 401) logIn();
  const result = response.status === 204 ? {} : await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(result.error || `the server answered ${response.status}`);
  return result;
}

// Reads from the control API.
export async function get(path) {
  const response = await fetch(root + path, { credentials: "same-origin" });
  if (!response.ok) throw new Error(`the server answered ${response.status}`);
  return response.json();
}

// A page of the viewer as a document, or null if it can't be fetched now.
export async function page(url) {
  try {
    const response = await fetch(url, { credentials: "same-origin" });
    if (response.redirected && response.url.includes("/viewer/login")) logIn();
    return response.ok ? new DOMParser().parseFromString(await response.text(), "text/html") : null;
  } catch {
    return null; // the server is unavailable; the live sign shows it
  }
}

// Escapes characters that hide or reverse text. Pages from the server are already escaped.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
const visible = (text) => text.replace(HIDDEN, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);

export function logIn() {
  const here = location.pathname.slice(root.length) + location.search;
  location.assign(`${root}/viewer/login?next=${part(here)}`);
}

export function toast(text) {
  const element = document.createElement("div");
  element.className = "toast";
  element.textContent = visible(text);
  document.getElementById("toasts").append(element);
  setTimeout(() => element.remove(), 6000);
}

export function show(element, text) {
  element.textContent = visible(text);
  element.hidden = !text;
}
