// One tab is visible: the tab that the hash names or that contains the named element, by default the first.
const tabs = [...document.querySelectorAll(".tab")];
let shown = null;

function choose() {
  const aim = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  shown = aim?.closest(".tab") ?? (aim ? shown : null) ?? tabs[0];
  for (const tab of tabs) tab.classList.toggle("shown", tab === shown);
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${shown.id}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (aim === shown) document.querySelector("nav").scrollIntoView({ block: "nearest" });
  else aim?.scrollIntoView();
  dispatchEvent(new Event("tab"));
}

if (tabs.length) {
  document.documentElement.classList.add("tabbed");
  addEventListener("hashchange", choose);
  choose();
}
