// A text field with a list of completions below it: a combobox, by keyboard or by pointer.

function attachCompletion(input, list, rulesToo) {
  let items = [];
  let chosen = -1;
  let from = 0;
  const close = () => {
    items = [];
    list.replaceChildren();
    chosen = -1;
    show(list, false);
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };
  const choose = (index) => {
    chosen = index;
    [...list.children].forEach((item, i) => item.setAttribute("aria-selected", String(i === index)));
    if (index < 0) return input.removeAttribute("aria-activedescendant");
    input.setAttribute("aria-activedescendant", list.children[index].id);
    list.children[index].scrollIntoView({ block: "nearest" });
  };
  const accept = (index) => {
    const cursor = input.selectionStart;
    const after = input.value
      .slice(cursor)
      .replace(/^\w*['"]?/, (rest) => (/^'/.test(items[index].insert) ? "" : rest));
    const head = input.value.slice(0, from) + items[index].insert;
    input.value = head + after;
    input.setSelectionRange(head.length, head.length);
    close();
    input.dispatchEvent(new Event("input", { bubbles: true }));
  };
  const open = () => {
    if (!start) return;
    const found = listCompletions(input.value, input.selectionStart, rulesToo);
    if (
      !found.items.length ||
      (!found.eager && input.value && !/\w$/.test(input.value.slice(0, input.selectionStart)))
    )
      return close();
    ({ items, from } = found);
    list.replaceChildren(
      ...items.map((item, i) =>
        make(
          "li",
          {
            role: "option",
            id: `${list.id}-${i}`,
            "aria-selected": "false",
            onmousedown: (event) => event.preventDefault(), // the field keeps the focus
            onclick: () => accept(i), // a finger may scroll the list
          },
          make("code", {}, shorten(item.shown, 60)),
          make("span", {}, shorten(item.help, 90)),
        ),
      ),
    );
    chosen = -1;
    show(list, true);
    input.setAttribute("aria-expanded", "true");
  };
  input.addEventListener("input", open);
  input.addEventListener("blur", close);
  input.addEventListener("click", () => {
    if (!input.value) open();
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" && !items.length) {
      open();
      event.preventDefault();
      return;
    }
    if (!items.length) return;
    if (event.key === "ArrowDown") choose((chosen + 1) % items.length);
    else if (event.key === "ArrowUp") choose((chosen + items.length - (chosen < 0 ? 0 : 1)) % items.length);
    else if (event.key === "Escape") {
      close();
      event.stopPropagation();
    } else if ((event.key === "Enter" || event.key === "Tab") && chosen >= 0) accept(chosen);
    else if (event.key === "Tab") {
      close();
      return;
    } else return;
    event.preventDefault();
  });
  return close;
}
