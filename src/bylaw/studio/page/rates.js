// Before and after: a block for each decision, a row for each group.

let partition = null; // the name of what rows are split by

function showRates(reply, asked) {
  const all = reply.partitions || [];
  const chosen = all.find((one) => one.name === partition) || all[1] || all[0];
  if (!chosen) return refill(get("rates"));
  showPartitions(all, chosen);
  const observed = asked.view === "observed";
  show(
    get("interval-key"),
    chosen.groups.some((group) => Array.isArray(group.lower)),
  );
  const blocks = reply.actions.map((action, a) => ({
    name: String(action),
    rows: chosen.groups.map((group) => ({
      group,
      before: group.before[a],
      after: group.after[a],
      lower: group.lower && group.lower[a],
      upper: group.upper && group.upper[a],
    })),
  }));
  if (chosen.groups.some((group) => known(group.mistakes_after))) {
    blocks.push({
      name: (reply.kind || start.kind) === "sets" ? "true label left out" : "mistakes",
      mistakes: true,
      rows: chosen.groups.map((group) => ({
        group,
        before: group.mistakes_before,
        after: group.mistakes_after,
      })),
    });
  }
  const scale = fitScale(
    blocks.flatMap((block) => block.rows.flatMap((row) => [row.before, row.after, row.lower, row.upper])),
  );
  const words = chosen === all[0] ? "all rows" : `by ${chosen.name}`;
  refill(
    get("rates"),
    make(
      "table",
      { class: "chart" },
      make(
        "caption",
        { class: "unseen" },
        `Share of each decision before and after, ${words}${observed ? ", as observed" : ""}`,
      ),
      make(
        "thead",
        {},
        make(
          "tr",
          {},
          make("th", { scope: "col" }, chosen === all[0] ? "" : chosen.name),
          make("th", { scope: "col" }, make("span", { class: "unseen" }, "chart")),
          make("th", { scope: "col" }, "before"),
          make("th", { scope: "col" }, "after"),
        ),
      ),
      blocks.map((block) => makeBlock(block, scale)),
      make(
        "tfoot",
        {},
        make(
          "tr",
          {},
          make("td", {}),
          make("td", {}, drawAxis(scale, "share")),
          make("td", {}),
          make("td", {}),
        ),
      ),
    ),
    chosen.left_out
      ? [make("p", { class: "note" }, `Smaller groups that are not shown: ${chosen.left_out}.`)]
      : [],
  );
}
function makeBlock(block, scale) {
  return make(
    "tbody",
    { class: block.mistakes ? "mistakes" : null },
    make(
      "tr",
      { class: "block" },
      make("th", { scope: "rowgroup", colspan: 4, title: block.name }, shorten(block.name)),
    ),
    block.rows.map(({ group, before, after, lower, upper }) => {
      const interval =
        known(lower) && known(upper) ? `, between ${formatShare(lower)} and ${formatShare(upper)}` : "";
      return make(
        "tr",
        {},
        make(
          "th",
          { scope: "row", title: `${group.value}: ${formatCount(group.rows)} rows` },
          shorten(group.value, 28),
        ),
        make(
          "td",
          {},
          drawDots(
            `${block.name}, ${group.value}: ${formatShare(before)} before, ${formatShare(after)} after${interval}`,
            before,
            after,
            scale,
            lower,
            upper,
          ),
        ),
        make("td", {}, formatCell(before)),
        make("td", { class: "strong" }, formatCell(after)),
      );
    }),
  );
}
function showPartitions(all, chosen) {
  const choose = (one) => {
    partition = one.name;
    showRates(answer, answered);
  };
  const buttons = all.map((one, i) =>
    make(
      "button",
      {
        type: "button",
        id: `partition-${i}`,
        "aria-pressed": String(one === chosen),
        title: one.name,
        onclick: () => choose(one),
      },
      shorten(i === 0 ? "all rows" : one.name, 24),
    ),
  );
  refill(get("partitions"), buttons);
  show(get("partitions"), all.length > 1);
}
