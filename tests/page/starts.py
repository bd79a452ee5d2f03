"""*When*'s pictures: no word leaves them, and how long machines took is in a picture that shows each machine's steps as the record has them."""

import time

from checks import expect, look_over

# Words of pictures that leave them, by how many pixels.
CUT = """
return [...document.querySelectorAll('.picture')].flatMap((picture) => {
  const frame = picture.getBoundingClientRect();
  return [...picture.querySelectorAll('text')].map((text) => [text.textContent, text.getBoundingClientRect()])
    .filter(([, box]) => box.left < frame.left - 0.5 || box.right > frame.right + 0.5)
    .map(([words, box]) => `${words}: ${Math.round(box.left - frame.left)} to ${Math.round(box.right - frame.left)} of ${Math.round(frame.width)}`);
});
"""
# The bars: of which machine, how high each part is, in which step, and where each bar is.
BARS = """
const picture = document.querySelector('.picture.starts');
const base = Math.max(...[...picture.querySelectorAll('rect')].map((it) => it.getBoundingClientRect().bottom));
return [...picture.querySelectorAll('.machine')].map((bar) => {
  const parts = [...bar.querySelectorAll('rect')];
  return {
    name: bar.querySelector('title').textContent.split(':')[0],
    steps: parts.map((it) => it.getAttribute('class').replace('phase-', '').split(' ')[0]),
    high: parts.map((it) => Number(it.getAttribute('height'))), x: Number(parts[0].getAttribute('x')), width: Number(parts[0].getAttribute('width')),
    colours: parts.map((it) => getComputedStyle(it).fill),
  };
});
"""
# What the record says of the same time.
RECORDED = "return fetch('/api/when?hours=6').then((answer) => answer.json()).then(({ steps }) => steps)"
# What shows as graphics is told from what is behind it, as WCAG 2 counts it.
FAINT = """
const channel = (value) => { value /= 255; return value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4; };
const light = (text) => { const [r, g, b] = text.match(/[\\d.]+/g).map(Number); return 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b); };
const ground = light(getComputedStyle(document.querySelector('.scene')).backgroundColor);
return [...document.querySelectorAll('.picture.starts rect')].map((it) => {
  const [one, other] = [light(getComputedStyle(it).fill), ground];
  return [it.getAttribute('class'), (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05)];
}).filter(([, ratio]) => ratio < 3);
"""


def starts_are_drawn(browser):
    """A bar for each machine that came up, whose parts are the steps, as high as they took; the same in words and in a list."""
    browser.go("#/when")
    browser.click("6 hours")
    for _ in range(30):
        browser.shows(" of pools; ", ".line", seconds=30)
        if browser.run("return document.querySelectorAll('.picture.starts .machine').length > 1"):
            break
        # While the record is read the demo's clock stands still: it is not asked often.
        time.sleep(3)
        browser.click("Read again")
    bars = browser.wait("bars of machines", BARS)
    recorded = browser.run(RECORDED)
    expect(len(bars) > 1, f"{len(bars)} machines are drawn")
    for bar in bars:
        took = {it["step"]: it["took"] for it in recorded[bar["name"]]}
        expect(len(set(bar["steps"])) == len(bar["steps"]) and set(bar["steps"]) <= set(took), f"{bar['name']} has the steps {bar['steps']}, recorded are {list(took)}")
        expect(len(set(bar["colours"])) == len(bar["colours"]), f"steps of {bar['name']} have the same colour: {bar}")
        whole, shown = sum(took[it] for it in bar["steps"]), sum(bar["high"])
        for step, high in zip(bar["steps"], bar["high"]):
            expect(abs(high / shown - took[step] / whole) < 0.08, f"{step} of {bar['name']} took {took[step]} of {whole} ms and is {high} of {shown} pixels high")
    longest = max(bars, key=lambda bar: sum(bar["high"]))
    expect(30 < sum(longest["high"]) < 121, f"the highest bar is {sum(longest['high'])} pixels high")
    edges = [bar["x"] for bar in bars]
    expect(all(b - a >= bars[0]["width"] for a, b in zip(edges, edges[1:])), f"bars lie on one another: {edges}")
    words = browser.run("return document.querySelector('.picture.starts').getAttribute('aria-label')")
    expect(f"{len(bars)} machines on their way up: usually " in words and "The longest step is " in words, f"the picture says {words!r}")
    listed = browser.run("return [...document.querySelectorAll('.steps-took dt')].map((it) => it.textContent.replaceAll(' ', '_'))")
    expect(set(listed) == {step for bar in bars for step in bar["steps"]}, f"the list has {listed}")
    for theme in ["light", "dark"]:
        browser.theme(theme)
        faint = browser.run(FAINT)
        expect(not faint, f"bars are as light as what is behind them ({theme}): {faint[:4]}")
    browser.theme("light")
    look_over(browser, "When, with how long machines took")
    nothing_is_cut(browser)


def nothing_is_cut(browser):
    """The names of times and numbers are whole, at several widths."""
    for width, phone in [(1280, False), (1013, False), (700, False), (360, True)]:
        browser.size(width, 740, phone=phone)
        browser.wait("it is drawn anew", "return [...document.querySelectorAll('.picture')].every((it) => Math.abs(it.clientWidth - it.parentElement.clientWidth) < 2)")
        cut = browser.run(CUT)
        expect(not cut, f"words leave the picture at a width of {width}: {cut[:4]}")
        look_over(browser, f"When, {width} wide", phone=phone)
    browser.size(1280, 900)


def last_name_is_whole(browser):
    """The last time that has a name below the picture may be that of its very end."""
    browser.go("#/when")
    browser.click("6 hours")
    browser.shows(" of pools; ", ".line", seconds=30)
    try:
        browser.run("""
            const asked = window.asked = window.asked ?? window.fetch;
            window.fetch = async (path, options) => {
              const answer = await asked(path, options);
              if (!answer.ok || !String(path).startsWith('/api/when')) return answer;
              const told = await answer.json();
              const hour = 3600e3;
              const to = Math.floor(told.to / hour) * hour;
              Object.assign(told, { from: to - 6 * hour, to, now: to });
              return new Response(JSON.stringify(told), { status: answer.status });
            };""")
        browser.click("Read again")
        ends = browser.wait("a name at the end", """
            const picture = document.querySelector('.picture');
            const names = [...picture.querySelectorAll('.tick.time')];
            return names.length > 0 && Math.max(...names.map((it) => Number(it.getAttribute('x')))) > picture.clientWidth - 30""", seconds=30)
        expect(ends, "no time is named at the end")
        nothing_is_cut(browser)
    finally:
        browser.run("window.fetch = window.asked ?? window.fetch")
    browser.go("#/")
    browser.shows("Pending pods")
