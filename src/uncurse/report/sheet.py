"""The page's style sheet. Light, dark and print are the same rules over other colours; nothing needs a script."""

from __future__ import annotations

from .style import FLOOR, FONT, GRID, INK, MUTED, PAPER, RULE, SERIES

_ROLES = {"ink": INK, "muted": MUTED, "grid": GRID, "rule": RULE, "floor": FLOOR, "paper": PAPER}


def _colors(dark: int) -> str:
    named = {**_ROLES, **{f"s{i}": pair for i, pair in enumerate(SERIES)}}
    scheme = ("light", "dark")[dark]
    return f"color-scheme:{scheme};" + "".join(f"--{k}:{pair[dark]};" for k, pair in named.items())


def _drawn() -> str:
    """Figures are drawn in the light colours; these rules give each its role back."""
    named = {**_ROLES, **{f"s{i}": pair for i, pair in enumerate(SERIES)}}
    rules = []
    for role, (light, _) in named.items():
        rules.append(f'svg [fill="{light}"]{{fill:var(--{role})}}svg [stroke="{light}"]{{stroke:var(--{role})}}')
    return "\n".join(rules)


_BODY = """
*{box-sizing:border-box}
html{font-size:17px;-webkit-text-size-adjust:100%}
body{margin:0;background:var(--paper);color:var(--ink);font:1rem/1.55 FONT;font-variant-numeric:tabular-nums;
overflow-wrap:anywhere}
main,header,footer{max-width:50rem;margin:0 auto;padding:0 1.25rem}
header{display:flex;flex-wrap:wrap;align-items:center;justify-content:space-between;gap:.5rem 1.5rem;
padding-top:1.75rem}
h1{font-size:1rem;font-weight:600;margin:0;letter-spacing:0}
h2{font-size:1.3rem;line-height:1.25;font-weight:650;margin:0 0 .4rem;letter-spacing:-.01em}
section{margin-top:3.5rem}
section>p{max-width:42rem;margin:.4rem 0 1rem}
figcaption{color:var(--muted);font-size:.88rem;line-height:1.5}
.headline{margin-top:2.75rem}
.headline .says{font-size:1.75rem;line-height:1.3;font-weight:600;letter-spacing:-.017em;margin:0;max-width:none;
text-wrap:pretty}
.says .aside{font-weight:400;color:var(--muted);letter-spacing:-.005em}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(15rem,1fr));gap:1.25rem 2.5rem;margin:2rem 0 0}
.pair>div{border-top:3px solid var(--tone);padding-top:.7rem}
.pair dt{color:var(--muted);font-size:.88rem}
.pair dd{margin:0}
.pair .big{font-size:3.4rem;line-height:1.1;font-weight:650;letter-spacing:-.03em;color:var(--tone)}
.pair .range{color:var(--muted);font-size:.88rem}
figure{margin:1.1rem 0 0}
figcaption{margin-top:.5rem;max-width:42rem}
svg.figure{display:block;width:100%;max-width:calc(var(--drawn)*1.12);height:auto;overflow:visible}
svg.figure text{font-family:inherit}
svg.narrow{display:none}
.legend{display:none;list-style:none;flex-wrap:wrap;gap:.2rem 1.1rem;margin:.4rem 0 .6rem;padding:0;font-size:.85rem}
.legend.always{display:flex}
.legend li{display:flex;align-items:center;gap:.45rem}
.legend svg{flex:none}
details{margin-top:.6rem;font-size:.88rem}
summary{cursor:pointer;color:var(--muted);width:fit-content;padding:.25rem 0}
summary:hover{color:var(--ink)}
.scroll{overflow-x:auto;margin-top:1.2rem}
details .scroll{margin-top:.6rem}
table{border-collapse:collapse;font-size:.85rem;line-height:1.4;width:100%}
caption{text-align:left;color:var(--muted);padding:0 0 .4rem;caption-side:top}
th,td{text-align:right;padding:.38rem .5rem;border-bottom:1px solid var(--grid);white-space:nowrap}
th{font-weight:600}
thead th{color:var(--muted);font-weight:500;border-bottom-color:var(--rule);vertical-align:bottom}
th:first-child,td:first-child{padding-left:0}
th:last-child,td:last-child{padding-right:0}
tbody th,th.text,td.text{text-align:left}
tbody th,td.text{white-space:normal;overflow-wrap:anywhere;min-width:7rem;max-width:18rem}
td small{display:block;color:var(--muted);font-size:.78rem}
fieldset{border:0;margin:0;padding:0;display:flex;flex-wrap:wrap;align-items:center;gap:.35rem}
legend{float:left;padding:0;margin:0 .5rem 0 0;color:var(--muted);font-size:.85rem}
fieldset label{position:relative;font-size:.85rem}
fieldset input{position:absolute;inset:0;width:100%;height:100%;margin:0;opacity:0;cursor:pointer}
fieldset span{display:block;padding:.22rem .7rem;border-radius:99px;border:1px solid var(--grid);color:var(--muted)}
fieldset input:hover+span{border-color:var(--rule);color:var(--ink)}
fieldset input:checked+span{border-color:var(--ink);color:var(--ink);font-weight:600}
fieldset input:focus-visible+span,summary:focus-visible,.scroll:focus-visible,a:focus-visible{
outline:3px solid var(--s1);outline-offset:2px;border-radius:.3rem}
fieldset input:focus-visible+span{border-radius:99px}
dl.facts{margin:1rem 0 0;font-size:.88rem}
.facts>div{display:grid;grid-template-columns:9rem 1fr;gap:0 1.5rem;padding:.45rem 0;
border-bottom:1px solid var(--grid)}
.facts dt{color:var(--muted)}
.facts dd{margin:0;min-width:0}
.facts code,code{font:.92em/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace}
.read{max-width:42rem;margin:1rem 0 0}
.read dt{font-weight:600;margin-top:1rem}
.read dd{margin:.15rem 0 0}
footer{margin-top:4rem;padding-top:1rem;padding-bottom:3rem;color:var(--muted);font-size:.82rem}
.printed{display:none;margin:.3rem 0;font-weight:600}
@media (max-width:40rem){
html{font-size:16px}
main,header,footer{padding-left:1rem;padding-right:1rem}
.headline{margin-top:2rem}
.headline .says{font-size:1.35rem}
.pair .big{font-size:2.9rem}
section{margin-top:2.75rem}
svg.wide{display:none}
svg.narrow{display:block}
.legend{display:flex}
.facts>div{grid-template-columns:1fr}
fieldset span{padding:.4rem .8rem}
}
@media print{
@page{margin:16mm 15mm}
html{font-size:12px}
main,header,footer{max-width:none;padding:0}
fieldset,.controls,details.data{display:none}
section{margin-top:2rem}
figure,.pair,table,dl.facts>div{break-inside:avoid}
h2{break-after:avoid}
.headline .says{font-size:1.6rem}
svg.figure{max-width:min(100%,calc(var(--drawn)*.8))}
.printed{display:block}
.scroll{overflow:visible}
}
""".replace("FONT", FONT)


def sheet(choices: int) -> str:
    """The whole style sheet; `choices` is how many selections the reliability figure offers."""
    light, dark = _colors(0), _colors(1)
    shown = "".join(f":root:has(#alpha-{i}:checked) .choice-{i}{{display:block}}" for i in range(choices))
    return "\n".join(
        [
            f":root{{{light}}}",
            f"@media screen and (prefers-color-scheme:dark){{:root:not(:has(#theme-light:checked)){{{dark}}}}}",
            f"@media screen{{:root:has(#theme-dark:checked){{{dark}}}}}",
            _BODY.strip(),
            _drawn(),
            # A browser that does not know :has() shows every selection, one below the other.
            f"@supports selector(:has(*)){{.choice{{display:none}}{shown}}}" if choices > 1 else "",
        ]
    )


__all__ = ["sheet"]
