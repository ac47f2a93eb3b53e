// The control API, and small things every module needs.
export const root = document.documentElement.dataset.root;

export const part = (text) => encodeURIComponent(text);

// Ask the control API; the visitor's cookie says who asks. Throws what the server said was wrong.
export async function post(path, body, type = "application/json") {
  const answer = await fetch(root + path, {
    method: "POST",
    headers: { "content-type": type },
    body: JSON.stringify(body),
    credentials: "same-origin",
  });
  if (answer.status === 401) logIn();
  const said = answer.status === 204 ? {} : await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(said.error || `the server answered ${answer.status}`);
  return said;
}

// Read from the control API.
export async function get(path) {
  const answer = await fetch(root + path, { credentials: "same-origin" });
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  return answer.json();
}

// A page of ours as a document; null if it can't be had right now.
export async function page(url) {
  try {
    const answer = await fetch(url, { credentials: "same-origin" });
    if (answer.redirected && answer.url.includes("/viewer/login")) logIn();
    return answer.ok ? new DOMParser().parseFromString(await answer.text(), "text/html") : null;
  } catch {
    return null; // the server is away; the live sign says so
  }
}

// Characters that hide, or turn the text around, as escapes; pages that come from the server have them so already.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
const visible = (text) => text.replace(UNSEEN, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);

export function logIn() {
  const here = location.pathname.slice(root.length) + location.search;
  location.assign(`${root}/viewer/login?next=${part(here)}`);
}

export function toast(text) {
  const made = document.createElement("div");
  made.className = "toast";
  made.textContent = visible(text);
  document.getElementById("toasts").append(made);
  setTimeout(() => made.remove(), 6000);
}

export function show(element, text) {
  element.textContent = visible(text);
  element.hidden = !text;
}
