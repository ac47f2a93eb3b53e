// Makes one element equal to another in place. Unchanged nodes are kept, so nothing jumps, and what is open, focused
// or scrolled stays that way.

const key = (node) => node.dataset?.key ?? (node.id || null);

export function morph(to, from) {
  if (to.isEqualNode(from) || to.dataset?.own !== undefined) return false; // a script fills it by itself
  attributes(to, from);
  children(to, from);
  return true;
}

function attributes(to, from) {
  for (const { name, value } of from.attributes) {
    if (to.getAttribute(name) !== value) to.setAttribute(name, value);
  }
  for (const { name } of [...to.attributes]) {
    const kept = name === "open" || (name === "width" && to.classList.contains("chart"));
    if (!kept && !from.hasAttribute(name)) to.removeAttribute(name);
  }
}

function children(to, from) {
  const keyed = new Map([...to.children].filter(key).map((child) => [key(child), child]));
  let place = to.firstChild;
  for (const target of [...from.childNodes]) {
    const known = target.nodeType === 1 && key(target) ? keyed.get(key(target)) : null;
    if (known) {
      if (known !== place) to.insertBefore(known, place);
      update(known, target);
      place = known.nextSibling;
    } else if (place && alike(place, target)) {
      update(place, target);
      place = place.nextSibling;
    } else {
      to.insertBefore(document.importNode(target, true), place);
    }
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

const alike = (a, b) => a.nodeName === b.nodeName && !(a.nodeType === 1 && (key(a) || key(b)));

function update(to, from) {
  if (to.nodeType !== 1) {
    if (to.nodeValue !== from.nodeValue) to.nodeValue = from.nodeValue;
  } else if (to.nodeName === "TIME" && to.dateTime === from.dateTime) {
    return; // it ticks by itself
  } else if (to.nodeName === "svg" && to.classList.contains("chart")) {
    const width = to.getAttribute("width");
    morph(to, from);
    to.setAttribute("width", width); // the visitor's zoom
  } else {
    morph(to, from);
  }
}
