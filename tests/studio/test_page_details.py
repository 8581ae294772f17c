"""What goes wrong on a page unless somebody thought of it: races, focus, mistakes in place, long saves."""

from __future__ import annotations

import json
import re
import threading
import time
from urllib.parse import quote

import numpy as np
import pytest

from bylaw.studio import Session, _session as session_module
from bylaw.view import format_percent, format_points, round_number
from helpers.browsers import FAULTS
from helpers.studio_pages import PARITY, REFERRED, add, drag, figures, settle, state, texts

pytestmark = pytest.mark.slow


def test_an_answer_to_other_rules_is_not_told_of_these(opened, gate):
    """A rule is removed while the answer without it takes long, or is cancelled."""
    page, _ = opened("loans")
    assert "2\xa0points" in page.locator("#said-0").text_content()
    gate.clear()
    page.click("#remove-0")
    assert "points" not in page.locator("#said-0").text_content()
    assert "10\xa0%" in page.locator("#said-0").text_content()  # its own, from before
    page.wait_for_selector("#progress:not([hidden])")
    page.click("#cancel")
    page.wait_for_selector("#results[data-status=cancelled]")
    assert page.locator("#said-0").text_content() == ""


def test_what_was_cancelled_is_not_followed_by_a_frontier(opened, gate):
    page, _ = opened("loans")
    page.wait_for_selector("#frontier[data-state=drawn]")
    asked = []
    page.on("request", lambda r: asked.append(r.url) if r.url.endswith("/api/frontier") else None)
    gate.clear()
    page.evaluate("() => document.querySelector('#on-1').click()")  # the other rule stays in hand
    page.wait_for_selector("#progress:not([hidden])")
    page.click("#cancel")
    page.wait_for_selector("#results[data-status=cancelled]")
    page.wait_for_timeout(1500)
    assert asked == []


def test_a_sentence_states_the_level_of_what_was_cancelled_or_failed(opened, gate):
    page, _ = opened("loans")
    gate.clear()
    page.fill("#level-1", "7")
    page.keyboard.press("Enter")
    page.wait_for_selector("#progress:not([hidden])")
    page.click("#cancel")
    page.wait_for_selector("#results[data-status=cancelled]")
    page.wait_for_function("() => document.querySelector('#sentence-1').textContent.includes('7\\u00a0%')")
    gate.set()
    page.fill("#level-1", "1000")
    page.keyboard.press("Enter")
    page.wait_for_selector("#results[data-status=failed]")
    page.wait_for_selector("#said-1 .fault")
    assert "can never be violated" in page.locator("#said-1").text_content()


def test_a_slider_that_is_pressed_and_not_moved_has_a_frontier(opened):
    page, _ = opened("loans")
    page.wait_for_selector("#frontier[data-state=drawn]")
    box = page.locator("#slider-1").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.wait_for_timeout(700)
    page.mouse.up()
    page.wait_for_selector("#frontier[data-state=drawn]")
    assert "referred" in page.locator("#frontier-rule").text_content()


def test_scenarios_wait_while_the_user_asks(opened, gate):
    rules = [{"text": f"rejected() <= 0.{i}", "on": True} for i in (1, 2, 3)]
    kept = [
        {"name": f"no {i}", "state": {"minimize": "error()", "rules": [rule]}} for i, rule in enumerate(rules)
    ]
    stated = {"minimize": "error()", "rules": rules[:1], "kept": kept}
    gate.clear()
    other, table = opened("loans", fragment="#" + quote(json.dumps(stated)), settled=False)
    other.wait_for_selector("#progress:not([hidden])")
    sent = []
    other.on("request", lambda r: sent.append(r.post_data_json) if r.url.endswith("/api/solve") else None)
    gate.set()
    settle(other)
    other.wait_for_function("() => !document.querySelector('#kept').textContent.includes('…')")
    assert [one["rules"] for one in sent] == [rules[1:2], rules[2:]]
    row = other.locator("#kept tr", has=other.locator("th", has_text="cost"))
    expected = [format_percent(table.cost(rule["text"])) for rule in rules]
    assert row.locator("td").all_text_contents() == [*expected, expected[0]]
    assert other.locator("#results").get_attribute("data-status") == "solved"


@pytest.fixture
def endless(monkeypatch):
    """Without rules, nothing is solved until it is cancelled."""
    own = Session.solve

    def stick(self, question, job=None):
        while job is not None and not question.rules:
            job.check()
            time.sleep(0.01)
        return own(self, question, job)

    monkeypatch.setattr(Session, "solve", stick)


def test_a_page_that_is_left_holds_up_nobody(opened, endless):
    page, _ = opened("loans", fragment="#" + quote('{"minimize": "error()", "rules": []}'), settled=False)
    page.wait_for_selector("#progress:not([hidden])")
    page.goto("about:blank")
    other, table = opened("loans")
    assert figures(other)[1] == format_percent(table.cost(PARITY, REFERRED))


def test_a_scenario_that_takes_long_does_not_hold_up_the_user(opened, endless):
    rules = [{"text": PARITY, "on": True}]
    kept = [{"name": "slow", "state": {"minimize": "error()", "rules": []}}]
    stated = {"minimize": "error()", "rules": rules, "kept": kept}
    page, table = opened("loans", fragment="#" + quote(json.dumps(stated)))
    page.wait_for_timeout(500)
    page.fill("#level-0", "9")
    page.keyboard.press("Enter")
    settle(page)
    assert figures(page)[1] == format_percent(table.cost("demographic_parity('race', tol=0.09)"))
    assert page.locator("#kept").text_content().count("…") > 0
    page.goto("about:blank")


def test_a_way_out_is_of_the_rule_that_it_names(opened, gate):
    """Another rule is removed while the conflict is still on the page."""
    page, _ = opened("loans")
    add(page, "selected('approve') <= 0.2")
    add(page, "selected('deny') <= 0.2")
    page.wait_for_selector("#relaxations button")
    page.fill("#keep-name", "kept")
    page.keyboard.press("Enter")
    row = page.locator("#kept tr", has=page.locator("th", has_text="cost"))
    assert row.locator("td").all_text_contents() == ["conflict", "conflict"]
    gate.clear()
    page.click("#remove-0")
    page.locator("#relaxations button", has_text="Loosen selected('deny')").last.click()
    gate.set()
    settle(page)
    assert texts(page)[0] == REFERRED
    assert texts(page)[1] == "selected('approve') <= 0.2"
    assert texts(page)[2].startswith("selected('deny') <= 0.7")


def test_a_mistake_in_the_objective_is_marked_and_the_answer_stays(opened):
    page, _ = opened("loans")
    before = figures(page)
    page.fill("#minimize", "error() + no_such_rate()")
    page.keyboard.press("Tab")
    page.wait_for_selector("#minimize-fault mark")
    assert "no_such_rate" in page.locator("#minimize-fault .fault").text_content()
    marked = page.evaluate("document.querySelector('#minimize-fault pre').firstChild.textContent")
    assert marked == "error() + "
    assert page.locator("#minimize").get_attribute("aria-invalid") == "true"
    assert not page.locator("#failure").is_visible()
    assert figures(page) == before
    assert state(page)["minimize"] == "error()"
    for wrong, words in (
        ("custom('visit')", "the table, which has no cost, got 'visit'"),
        ("error().given(age='old')", "group column must be one of"),
        ("disagreement('old')", "which has no earlier model, got 'old'"),
        ("miscoverage()", "one kind of decisions"),  # a rule refers to rejections
        ("error() <= 0.1", "must be a rate"),
    ):
        page.fill("#minimize", wrong)
        page.keyboard.press("Tab")
        page.wait_for_function(
            "(words) => document.querySelector('#minimize-fault').textContent.includes(words)", arg=words
        )
        assert figures(page) == before
    page.fill("#minimize", "")
    page.keyboard.press("Tab")
    assert page.input_value("#minimize") == "error()"
    assert page.locator("#minimize-fault").text_content() == ""


def test_an_objective_that_only_the_solver_refuses_is_marked_too(opened, monkeypatch):
    page, _ = opened("loans")
    own = Session.solve

    def refuse(self, question, job=None):
        if question.minimize == "selected('deny')":
            raise session_module.OptionError("not this one")
        return own(self, question, job)

    monkeypatch.setattr(Session, "solve", refuse)
    page.fill("#minimize", "selected('deny')")
    page.keyboard.press("Enter")
    page.wait_for_selector("#minimize-fault .fault")
    assert page.locator("#minimize-fault").text_content() == "not this one"
    assert not page.locator("#failure").is_visible()
    page.click("#undo")
    settle(page)
    assert page.locator("#minimize-fault").text_content() == ""


def test_a_rule_is_edited_in_its_card(opened):
    page, table = opened("loans")
    page.locator("#edit-1").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "rule-text-1"
    assert page.input_value("#rule-text-1") == REFERRED
    assert page.evaluate(FAULTS) == []
    page.fill("#rule-text-1", "rejected() + nothing() <= 0.1")
    page.wait_for_selector("#rule-fault-1 mark")
    page.keyboard.press("Enter")
    assert texts(page)[1] == REFERRED
    page.fill("#rule-text-1", "sel")
    page.wait_for_selector("#rule-list-1 li")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.keyboard.type(" <= 0.5")
    page.wait_for_selector("#rule-fault-1 .note")
    page.keyboard.press("Enter")
    page.wait_for_selector("#rule-text-1", state="detached")
    settle(page)
    assert texts(page) == [PARITY, "selected('approve') <= 0.5"]
    assert figures(page)[1] == format_percent(table.cost(*texts(page)))
    assert page.evaluate("document.activeElement.id") == "edit-1"
    assert page.locator("#slider-1").input_value() == "0.5"
    page.locator("#sentence-0").dblclick()
    page.fill("#level-0", "3")  # an editor that nobody has typed in follows
    assert page.input_value("#rule-text-0") == "demographic_parity('race', tol=0.03)"
    page.fill("#level-0", "2")
    page.locator("#rule-text-0").focus()
    page.keyboard.press("Escape")
    assert page.locator(".editor").count() == 0
    page.keyboard.press("Control+z")
    settle(page)
    assert texts(page) == [PARITY, REFERRED]


def test_a_rule_is_judged_beside_the_objective_of_now(opened):
    page, _ = opened("sets")
    page.click("#remove-0")
    settle(page)
    page.fill("#minimize", "error()")
    page.keyboard.press("Enter")
    page.wait_for_function("() => location.hash.includes('%22error()%22')")
    settle(page)
    add(page, "rejected() <= 0.1")  # which makes no sense of sets
    assert page.locator("#results").get_attribute("data-status") == "solved"


def test_steps_by_a_key_held_down_are_undone_at_once(opened):
    page, _ = opened("loans")
    first = texts(page)
    page.locator("#slider-1").focus()
    page.evaluate(  # a key held down, however busy the machine
        """(slider) => { for (let i = 0; i < 12; i += 1) {
          slider.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowRight", bubbles: true}));
          slider.stepUp();
          for (const name of ["input", "change"]) slider.dispatchEvent(new Event(name, {bubbles: true}));
        } }""",
        page.locator("#slider-1").element_handle(),
    )
    settle(page)
    assert texts(page)[1] == "rejected() <= 0.112"
    page.keyboard.press("Control+z")
    settle(page)
    assert texts(page) == first
    assert page.locator("#undo").is_disabled()


def test_the_address_is_not_written_more_often_than_browsers_allow(opened):
    page, _ = opened("loans")
    count = page.evaluate(
        """() => new Promise((done) => {
          let count = 0;
          const own = history.replaceState.bind(history);
          history.replaceState = (...given) => { count += 1; return own(...given); };
          const slider = document.getElementById("slider-1");
          for (let i = 0; i < 300; i += 1) {
            slider.value = i % 2 ? 0.05 : 0.06;
            slider.dispatchEvent(new Event("change"));
          }
          done(count);
        })"""
    )
    assert count < 100
    page.wait_for_function("() => location.hash.includes('0.05')")


def test_a_level_beyond_its_slider_gives_it_another_range(opened):
    page, _ = opened("loans")
    assert page.locator("#slider-1").get_attribute("max") == "0.2"
    page.fill("#level-1", "60")
    page.keyboard.press("Enter")
    settle(page)
    page.wait_for_function("() => document.querySelector('#slider-1').max === '1'")
    assert page.locator("#slider-1").input_value() == "0.6"
    assert page.input_value("#level-1") == "60"
    page.wait_for_selector("#frontier[data-state=drawn]")
    page.wait_for_function(
        "() => document.querySelector('#frontier svg title')?.textContent.includes('100\\u00a0%:')"
    )


@pytest.mark.parametrize(
    ("stated", "rules"),
    [
        ({"minimize": "error()", "rules": [None, 3, {"text": 4}, {"text": REFERRED}]}, [REFERRED]),
        (
            {"minimize": "error()", "rules": [{"text": REFERRED}], "hand": -7, "kept": [None, 3, {}]},
            [REFERRED],
        ),
        (
            {"minimize": "error()", "rules": [{"text": REFERRED}], "hand": 10**9, "view": "observed"},
            [REFERRED],
        ),
        ({"minimize": "x" * 30_000, "rules": []}, [PARITY, REFERRED]),
        ({"minimize": "error()", "rules": [{"text": "y" * 30_000}, {"text": PARITY}]}, [PARITY]),
    ],
)
def test_addresses_may_hold_anything(opened, stated, rules):
    page, _ = opened("loans", fragment="#" + quote(json.dumps(stated)))
    assert texts(page) == rules
    assert state(page)["view"] == "predicted"
    assert 0 <= state(page)["hand"] < len(rules)
    many = {
        "minimize": "error()",
        "rules": [],
        "kept": [stated | {"name": f"{i}", "state": stated} for i in range(99)],
    }
    page.evaluate("(hash) => (location.hash = hash)", quote(json.dumps(many)))
    page.wait_for_function("() => document.querySelectorAll('#rules > li').length === 0")
    assert page.locator("#kept thead th").count() <= 51


def test_a_nameless_address_in_an_open_page_is_put_right(opened):
    page, _ = opened("loans")
    page.evaluate("() => (location.hash = 'nonsense')")
    page.wait_for_function("() => location.hash.includes('minimize')")
    assert texts(page) == [PARITY, REFERRED]


def test_focus_stays_where_somebody_works(opened, gate):
    page, _ = opened("jobs")
    page.locator("#changes summary").focus()
    page.evaluate("() => document.querySelector('#on-0').click()")
    settle(page)
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
    page.fill("#keep-name", "kept")
    page.keyboard.press("Enter")
    page.click("#drop-0")
    assert page.evaluate("document.activeElement.id") == "keep-name"
    page.locator("#undo").focus()
    page.keyboard.press("Enter")
    settle(page)
    assert page.locator("#undo").is_disabled()
    assert page.evaluate("document.activeElement.id") == "redo"


def test_live_regions_do_not_chatter(opened, gate):
    page, _ = opened("loans")
    page.evaluate(
        """() => { window.said = [];
        document.querySelectorAll("[role=status], [role=alert], [aria-live]").forEach((region) =>
          new MutationObserver(() => region.textContent.trim() && window.said.push(region.textContent))
            .observe(region, {childList: true, characterData: true, subtree: true})); }"""
    )
    gate.clear()
    page.fill("#level-0", "10")
    page.keyboard.press("Tab")
    page.wait_for_selector("#progress:not([hidden])")
    page.wait_for_timeout(1200)
    assert re.search(r"\d\.\d s", page.locator("#progress-words").text_content())
    assert page.evaluate("window.said") == ["Solving …"]
    gate.set()
    settle(page)
    page.locator("#new-rule").focus()
    page.keyboard.type("rejected() <=", delay=200)
    heard = page.evaluate("window.said")
    assert len(heard) == 2
    page.wait_for_function("() => window.said.length === 3")  # the mistake, once nothing is typed


def test_the_banner_is_read_once(opened, restartable):
    _, start = restartable
    one = start()
    page, _ = opened("again", url=one.url, forgiving=True)
    one.close()
    page.fill("#level-0", "10")
    page.keyboard.press("Tab")
    page.wait_for_selector("html[data-gone=away]")
    page.evaluate(
        """() => { window.changes = 0;
        new MutationObserver(() => (window.changes += 1))
          .observe(gone, {childList: true, characterData: true, subtree: true}); }"""
    )
    page.wait_for_timeout(3000)  # two more knocks
    assert page.evaluate("window.changes") == 0


def test_a_finger_may_scroll_the_completions(opened):
    page, _ = opened("loans", viewport={"width": 380, "height": 800}, has_touch=True)
    page.tap("#new-rule")
    page.keyboard.type("e")
    page.wait_for_selector("#new-rule-list li")
    page.locator("#new-rule-list li").first.dispatch_event("pointerdown")
    assert page.input_value("#new-rule") == "e"
    page.locator("#new-rule-list li").first.tap()
    assert page.input_value("#new-rule").endswith(("(", "()"))
    assert page.evaluate("document.activeElement.id") == "new-rule"


def test_numbers_are_rounded_as_in_reports(opened):
    page, _ = opened("loans")
    source = page.evaluate("document.querySelector('script').textContent")
    numbers = source[
        source.index("// Numbers as people read") : source.index("// Before and after: a block for each de")
    ]
    shares = [0.0125, 0.0625, 0.3125, 0.00125, 0.1275, 0.12345, 0.00994, 0.00996, 1e-5, 0.0, -0.0375, 1.0]
    plain = [0.125, 1234.5, 1e-8, -2.5e-9, 2.5, 0.5, 12345678.0, -0.00625]
    shown = evaluate_numbers(page, numbers, shares, plain)
    assert shown[0] == [format_percent(value) for value in shares]
    assert shown[1] == [format_points(value) for value in shares]
    assert shown[2] == [round_number(value) for value in plain]


def test_a_long_save_shows_progress_and_is_cancelled(opened, monkeypatch):
    page, table = opened("loans")
    let, own = threading.Event(), session_module.report

    def slow(*args, **options):
        from bylaw._base import checkpoint

        while not let.wait(0.01):
            checkpoint()
        return own(*args, **options)

    monkeypatch.setattr(session_module, "report", slow)
    page.click("[data-save=report]")
    page.wait_for_selector("#saving:not([hidden])")
    page.wait_for_function(
        "() => /report.html … \\d/.test(document.querySelector('#saving-words').textContent)"
    )
    page.fill("#level-0", "9")  # a save does not hold up solves
    page.keyboard.press("Enter")
    settle(page)
    assert figures(page)[1] == format_percent(table.cost("demographic_parity('race', tol=0.09)", REFERRED))
    assert page.locator("#saving").is_visible()
    page.locator("#new-rule").focus()
    page.click("#cancel-save")
    page.wait_for_selector("#saving", state="hidden")
    assert "cancelled" in page.locator("#saved").text_content()
    assert page.locator("#results").get_attribute("data-status") == "solved"
    page.click("[data-save=report]")
    page.wait_for_selector("#saving:not([hidden])")
    page.click("[data-save=policy]")  # after the report
    page.locator("#new-rule").focus()
    with page.expect_download() as first:
        let.set()
    assert first.value.suggested_filename == "report.html"
    page.wait_for_function("() => document.querySelector('#saved').textContent.includes('policy.json')")
    assert page.evaluate("document.activeElement.id") == "new-rule"


def test_a_level_is_looked_at_by_pointer_and_key(opened):
    page, table = opened("loans")
    page.wait_for_selector("#frontier[data-state=drawn]")
    readout = page.locator("#frontier-readout")
    cost = table.cost(PARITY, REFERRED)
    more = format_points(cost - table.cost(REFERRED))
    now = f"Now, at 2\xa0points: {format_percent(cost)}, +{more} against the other rules alone"
    assert readout.text_content() == now
    page.locator("#frontier-plot").focus()
    page.keyboard.press("End")
    loose = "demographic_parity('race', tol=0.2)"
    assert readout.text_content().startswith(
        f"At 20\xa0points: {format_percent(table.cost(loose, REFERRED))}, "
    )
    assert page.locator("#frontier-plot").get_attribute("aria-valuetext") == readout.text_content()
    assert texts(page)[0] == PARITY
    page.keyboard.press("Enter")
    settle(page)
    assert texts(page)[0] == loose
    assert page.evaluate("document.activeElement.id") == "frontier-plot"
    box = page.locator("#frontier svg").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 50)
    page.wait_for_function("() => document.querySelector('#frontier-readout').textContent.startsWith('At ')")
    assert page.evaluate(FAULTS) == []


def test_the_frontier_is_as_observed_where_rates_are(opened):
    page, table = opened("labelled")
    page.click("#remove-1")
    settle(page)
    page.wait_for_selector("#frontier[data-state=drawn]")
    page.locator("#frontier-plot").focus()
    page.keyboard.press("End")
    loose = table.solve("demographic_parity('race', tol=0.2)", observed=True)
    costs = [measure(policy, table, True) for policy in (loose, table.solve())]
    shown = page.locator("#frontier-readout").text_content()
    assert shown.startswith(f"At 20\xa0points: {format_percent(costs[0])}, ")
    assert format_points(costs[0] - costs[1]) in shown
    assert "as observed" in page.locator("#frontier").text_content()


@pytest.mark.parametrize(("name", "others"), [("loans", []), ("labelled", []), ("loans", [REFERRED])])
def test_the_tightest_level_within_a_cost_is_found(opened, name, others):
    """By trying every level of the slider; what other rules cost, or save, does not count."""
    page, table = opened(name)
    page.wait_for_selector("#frontier[data-state=drawn]")
    if not others:
        page.click("#remove-1")
        settle(page)
        page.wait_for_selector("#frontier[data-state=drawn]")
    page.fill("#budget-most", "0.5")
    page.click("#budget button")
    page.wait_for_function("() => document.querySelector('#budget-said').textContent.includes('against')")
    settle(page)
    found = float(page.input_value("#level-0"))

    def cost(level):
        rule = f"demographic_parity('race', tol={level / 100})"
        return measure(table.solve(rule, *others, observed=name == "labelled"), table, name == "labelled")

    free = measure(table.solve(*others), table, name == "labelled")
    assert cost(found) - free <= 0.005 + 1e-6
    assert cost(round(found - 0.1, 3)) - free > 0.005
    said = page.locator("#budget-said").text_content()
    more = re.search(r": ([+−]?[\d.]+)\s+points? against the other rules alone", said)
    assert more is not None
    assert float(more[1].replace("−", "-")) / 100 == pytest.approx(cost(found) - free, abs=6e-5)
    page.click("#undo")
    settle(page)
    assert page.locator("#budget-said").text_content() == ""  # it was about another level


def test_a_cost_that_no_level_keeps_is_told(opened):
    page, _ = opened("loans")
    add(page, "selected('approve') <= 0.2")
    page.locator("#slider-0").focus()
    page.wait_for_selector("#frontier[data-state=drawn]")
    before = texts(page)
    page.fill("#budget-most", "-0.5")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('#budget-said').textContent.includes('Not even')")
    assert texts(page) == before
    page.fill("#budget-most", "")
    page.keyboard.press("Enter")
    assert page.locator("#budget-most").get_attribute("aria-invalid") == "true"


def measure(policy, table, observed):
    """The share of mistakes, by hand."""
    chances = policy.probabilities(table.evidence)
    if not observed:
        scores = table.evidence.probabilities  # a referral is no mistake
        return float((chances[:, : scores.shape[1]] * (1 - scores)).sum(axis=1).mean())
    mine = np.array([list(policy.actions).index(label) for label in table.labels])
    return 1 - float(chances[np.arange(len(mine)), mine].mean())


def evaluate_numbers(page, numbers, shares, plain):
    """The page's own functions, in a module of their own."""
    handle = page.context.new_page()
    handle.add_script_tag(
        content=f"{numbers}; window.shown = (s, p) => [s.map(formatShare), "
        "s.map((v) => formatAmount(v, 'points')), p.map((v) => roundNumber(v))]"
    )
    shown = handle.evaluate("([shares, plain]) => window.shown(shares, plain)", [shares, plain])
    handle.close()
    return shown


def test_a_dragged_slider_is_one_step(opened):
    page, _ = opened("loans")
    drag(page, 1, [0.9, 0.3])
    settle(page)
    page.click("#undo")
    settle(page)
    assert texts(page)[1] == REFERRED
    assert page.locator("#undo").is_disabled()


def test_what_a_rule_can_reach_is_rounded(opened):
    """It is found to within the solver's precision; only digits that tell it from the level are shown."""
    page, _ = opened("loans")
    text = "selected('approve') <= 0.2"

    def answer(route):
        response = route.fetch()
        found = response.json()
        for rule in (found["conflict"] or {"rules": ()})["rules"]:
            rule["reach"] = {text: 0.29999999912}.get(rule["text"], 0.5002)
        route.fulfill(response=response, json=found)

    page.route("**/api/solve*", answer)
    add(page, text)
    add(page, "selected('approve') >= 0.5")
    shown = page.locator("#conflict-rules li").all_text_contents()
    assert f"{text} can reach 30\N{NO-BREAK SPACE}% while the others listed hold" in shown
    assert any("can reach 50.02\N{NO-BREAK SPACE}% while" in line for line in shown)


def test_tiles_tell_three_costs_and_break_no_word(opened):
    page, table = opened("loans", viewport={"width": 1000, "height": 900})
    names = page.locator("#figures dt").all_text_contents()
    assert names[:3] == ["Your model", "Without rules", "With these rules"]
    scores = table.evidence.probabilities
    least = format_percent(float((1 - scores.max(axis=1)).mean()))
    shown = page.locator("#figures .number").all_text_contents()
    assert shown[0] == shown[1]  # nothing is calibrated, and a referral is free
    if state(page)["view"] == "predicted":
        assert shown[0] == least
    page.evaluate("document.querySelector('#figures dt').textContent = 'Compensation'.repeat(3)")
    wide, word = page.evaluate(
        "() => { const dt = document.querySelector('#figures dt'); const range = document.createRange();"
        " range.selectNodeContents(dt); return [dt.clientWidth, range.getClientRects().length]; }"
    )
    assert word == 1  # one line
    assert wide > 160


@pytest.mark.parametrize("late", [150, 1000], ids=["before the frontier is asked for", "after it was"])
def test_a_range_that_arrives_late_still_gets_its_frontier(opened, late):
    """The answer to a level beyond its slider may be there before the slider's other range is."""
    page, _ = opened("loans")
    page.wait_for_selector("#frontier[data-state=drawn]")
    held = []
    page.route("**/api/rule", lambda route: held.append(route))
    page.fill("#level-1", "60")
    page.keyboard.press("Enter")
    settle(page)
    page.wait_for_timeout(late)
    held[-1].continue_()
    page.wait_for_function("() => document.querySelector('#slider-1').max === '1'")
    page.wait_for_function(
        "() => document.querySelector('#frontier svg title')?.textContent.includes('100\\u00a0%:')"
    )
    assert page.get_attribute("#frontier", "data-state") == "drawn"
