// Who changes: the largest flows between decisions, then each group's share.

function showChanges(reply) {
  const parts = [
    make(
      "p",
      {},
      make("strong", {}, formatShare(reply.changed)),
      " of all decisions differ from those of your model.",
    ),
  ];
  const sets = (reply.kind || start.kind) === "sets";
  const flows = [];
  (reply.flows || []).forEach((row, from) =>
    row.forEach((share, to) => {
      if (from !== to && share > 5e-7) flows.push({ from, to, share });
    }),
  );
  flows.sort((one, other) => other.share - one.share);
  const name = (index) => shorten(reply.actions[index], 22);
  if (flows.length) {
    const most = flows[0].share;
    parts.push(
      makeBars(
        sets ? "Labels that join the likeliest one" : "From one decision to another",
        flows.slice(0, 6).map(({ from, to, share }) => ({
          label: `${name(from)} ${sets ? "+" : "→"} ${name(to)}`,
          share,
        })),
        most,
      ),
    );
    if (flows.length > 6) parts.push(makeFlowTable(reply, sets));
  }
  const partitions = [...new Set((reply.changed_by_group || []).map((one) => one.name))];
  const most = Math.max(...(reply.changed_by_group || []).map((one) => one.changed || 0), 0);
  partitions.forEach((group) => {
    const rows = reply.changed_by_group.filter((one) => one.name === group);
    parts.push(
      makeBars(
        `Changed, by ${shorten(group, 30)}`,
        rows.map((one) => ({ label: shorten(one.value, 28), share: one.changed })),
        most,
      ),
    );
  });
  refill(get("changes"), parts);
}
function makeBars(caption, rows, most) {
  return make(
    "table",
    { class: "bars" },
    make("caption", {}, caption),
    make(
      "tbody",
      {},
      rows.map(({ label, share }) =>
        make(
          "tr",
          {},
          make("th", { scope: "row" }, label),
          make(
            "td",
            {},
            draw(
              "svg",
              { width: "100%", height: 16, "aria-hidden": "true", focusable: "false" },
              draw("rect", {
                x: 0,
                y: 2,
                width: `${(most > 0 ? (100 * share) / most : 0).toFixed(2)}%`,
                height: 12,
                rx: 2,
                class: "bar",
              }),
            ),
          ),
          make("td", {}, formatCell(share)),
        ),
      ),
    ),
  );
}
function makeFlowTable(reply, sets) {
  const open = Boolean(document.querySelector("#changes details[open]"));
  return make(
    "details",
    { open },
    make("summary", { id: "all-flows" }, "All flows"),
    make(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": "All flows" },
      make(
        "table",
        { class: "data" },
        make(
          "caption",
          {},
          sets
            ? "Share of rows, by the likeliest label (rows) and what the set holds (columns)"
            : "Share of rows, from (rows) to (columns)",
        ),
        make(
          "thead",
          {},
          make(
            "tr",
            {},
            make("td", {}),
            reply.actions.map((action) => make("th", { scope: "col" }, shorten(action, 16))),
          ),
        ),
        make(
          "tbody",
          {},
          reply.flows.map((row, from) =>
            make(
              "tr",
              {},
              make("th", { scope: "row" }, shorten(reply.actions[from], 20)),
              row.map((share, to) => make("td", { class: from === to ? "quiet" : null }, formatCell(share))),
            ),
          ),
        ),
      ),
    ),
  );
}
