// A table that sorts, filters and pages, and that changes in place: rows keep their elements, and with them the focus.

import { h, say, fill, place } from "./dom.js";
import { announce, enable, enabled, keepFocus } from "./keep.js";

/// Rows on one page.
const PAGE = 50;

export class Table {
  /// `columns`: `name`, `cell(row)` (text, or `{sign, make}`), `sort(row)`, `num`, `wide`.
  /// `key(row)` tells rows apart; `text(row)` is what the filter looks at; `detail(row, element)` fills a row that opens.
  constructor({ caption, columns, key, text, detail, detailName, empty, sort }) {
    Object.assign(this, { columns, key, text, detail, detailName, empty });
    this.rows = [];
    this.all = 0;
    this.page = 0;
    this.sort = sort ?? { column: -1, down: false };
    this.open = new Set();
    this.elements = new Map();
    this.build(caption);
  }

  build(caption) {
    this.heads = this.columns.map((column, index) => this.head(column, index));
    const more = this.detail ? [h("th", { scope: "col", role: "columnheader" }, h("span", { class: "hidden" }, this.detailName))] : [];
    this.body = h("tbody", { role: "rowgroup" });
    this.table = h("table", { role: "table" },
      h("caption", { class: "hidden" }, caption),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, this.heads.map((head) => head.th), more)),
      this.body);
    this.filter = h("input", {
      type: "search", placeholder: "Filter", "aria-label": `Filter: ${caption}`, spellcheck: "false", autocomplete: "off",
      on: { input: () => { this.page = 0; this.show(); announce(this.where.textContent); } },
    });
    const turn = (by) => ({ currentTarget }) => {
      if (!enabled(currentTarget)) return;
      this.page += by;
      this.show();
      this.table.scrollIntoView({ block: "nearest" });
      announce(this.where.textContent);
    };
    this.back = h("button", { type: "button", class: "quiet", on: { click: turn(-1) } }, "Previous");
    this.next = h("button", { type: "button", class: "quiet", on: { click: turn(1) } }, "Next");
    this.where = h("span", { class: "where" });
    this.pager = h("div", { class: "pager" }, this.filter, h("span", { class: "grow" }), this.where, this.back, this.next);
    this.none = h("p", { class: "none" }, this.empty);
    this.element = h("div", { class: "table" }, this.none, this.pager, this.table);
  }

  head(column, index) {
    const button = h("button", { type: "button", on: { click: () => this.sortBy(index) } }, column.name);
    const th = h("th", { scope: "col", role: "columnheader", class: column.num ? "num" : "", "aria-sort": column.sort ? "none" : null }, column.sort ? button : column.name);
    return { th, button };
  }

  sortBy(column) {
    const down = this.sort.column === column ? !this.sort.down : Boolean(this.columns[column].num);
    this.sort = { column, down };
    this.page = 0;
    this.show();
    announce(`Sorted by ${this.columns[column].name}, ${down ? "descending" : "ascending"}.`);
  }

  /// Shows these rows; `all` of them there are, when not all are here.
  update(rows, all = rows.length) {
    this.rows = rows;
    this.all = all;
    this.show();
  }

  /// The rows that are asked for, in their order.
  chosen() {
    const asked = this.filter.value.trim().toLowerCase();
    const rows = asked ? this.rows.filter((row) => this.text(row).toLowerCase().includes(asked)) : [...this.rows];
    const { column, down } = this.sort;
    if (column >= 0) {
      const of = this.columns[column].sort;
      const compare = (a, b) => {
        const [one, other] = [of(a), of(b)];
        if (one === other) return 0;
        if (one === null || one === undefined) return 1;
        if (other === null || other === undefined) return -1;
        return (one < other ? -1 : 1) * (down ? -1 : 1);
      };
      rows.sort(compare);
    }
    return rows;
  }

  show() {
    const rows = this.chosen();
    const pages = Math.max(1, Math.ceil(rows.length / PAGE));
    this.page = Math.min(Math.max(0, this.page), pages - 1);
    const first = this.page * PAGE;
    const shown = rows.slice(first, first + PAGE);
    this.none.hidden = this.rows.length > 0;
    keepFocus(this.table, () => { this.table.hidden = this.rows.length === 0; });
    const many = this.rows.length > PAGE || this.all > this.rows.length;
    // Who is at it keeps it, however few rows there are by now.
    const held = this.pager.contains(document.activeElement);
    this.pager.hidden = !(held || many || (this.text && this.rows.length > 12) || this.filter.value);
    this.filter.hidden = !this.text;
    keepFocus(this.pager, () => { this.back.hidden = this.next.hidden = pages === 1; });
    enable(this.back, this.page > 0);
    enable(this.next, this.page < pages - 1);
    const beyond = this.all > this.rows.length ? ` (the first ${this.rows.length} of ${this.all})` : "";
    say(this.where, rows.length === 0 ? "none matches" : `${first + 1}–${first + shown.length} of ${rows.length}${beyond}`);
    this.heads.forEach(({ th }, index) => {
      const sorted = this.sort.column === index;
      const order = sorted ? (this.sort.down ? "descending" : "ascending") : "none";
      if (this.columns[index].sort && th.getAttribute("aria-sort") !== order) th.setAttribute("aria-sort", order);
    });
    this.place(shown);
  }

  place(shown) {
    const used = new Map();
    const rows = [];
    for (const row of shown) {
      const key = this.key(row);
      if (used.has(key)) continue;
      const entry = this.elements.get(key) ?? this.entry(key);
      entry.row = row;
      this.fillRow(entry);
      used.set(key, entry);
      rows.push(entry.tr);
      if (this.open.has(key)) {
        this.detail(row, entry.inner);
        rows.push(entry.under);
      }
    }
    place(this.body, rows);
    this.elements = used;
  }

  entry(key) {
    const cells = this.columns.map((column, index) =>
      h(index === 0 ? "th" : "td", {
        scope: index === 0 ? "row" : null, role: index === 0 ? "rowheader" : "cell", "data-name": column.name,
        class: [column.num ? "num" : "", column.wide ? "wide" : ""].join(" ").trim(),
      }));
    const entry = { cells, row: null };
    const more = [];
    if (this.detail) {
      entry.button = h("button", { type: "button", class: "quiet", "aria-expanded": "false", on: { click: () => this.toggle(key) } });
      more.push(h("td", { role: "cell", class: "more" }, entry.button));
      entry.inner = h("td", { role: "cell", colspan: this.columns.length + 1 });
      entry.under = h("tr", { role: "row", class: "under" }, entry.inner);
    }
    entry.tr = h("tr", { role: "row" }, cells, more);
    return entry;
  }

  fillRow(entry) {
    this.columns.forEach((column, index) => {
      const shown = column.cell(entry.row);
      const cell = entry.cells[index];
      if (shown !== null && typeof shown === "object") fill(cell, shown.sign, shown.make);
      else say(cell, shown ?? "");
    });
    if (entry.button) {
      const open = this.open.has(this.key(entry.row));
      const does = `${open ? "Hide" : "Show"} ${this.detailName}`;
      say(entry.button, does);
      entry.button.setAttribute("aria-label", `${does} of ${this.key(entry.row)}`);
      const told = String(open);
      if (entry.button.getAttribute("aria-expanded") !== told) entry.button.setAttribute("aria-expanded", told);
    }
  }

  toggle(key) {
    if (!this.open.delete(key)) this.open.add(key);
    this.show();
  }
}
