//! The page of a run in a browser.

use ringfence_testkit::browser::Browser;
use serde_json::json;

/// Starts one, or says loudly that there is none.
pub(crate) fn start() -> Option<Browser> {
    Browser::start("the page of a run")
}

/// Writes a page to a file, opens it at a fragment of its address, and waits until it says that
/// it is ready.
pub(crate) fn open(browser: &mut Browser, page: &[u8], fragment: &str) {
    let file = browser.directory().join("timeline.html");
    std::fs::write(&file, page).unwrap();
    browser.visit(&format!("file://{}{fragment}", file.display()));
}

/// Moves over the lanes as a person would, until the tip begins so, and returns the place.
pub(crate) fn look_for(browser: &mut Browser, tip: &str) -> (f64, f64) {
    let script = format!(
        "(() => {{
               const canvas = document.getElementById('lanes');
               const tip = document.getElementById('tip');
               const box = canvas.getBoundingClientRect();
               for (let y = 30; y < box.height; y += 6) for (let x = 190; x < box.width; x += 4) {{
                 const at = {{ clientX: box.left + x, clientY: box.top + y, bubbles: true }};
                 canvas.dispatchEvent(new PointerEvent('pointermove', at));
                 if (!tip.hidden && tip.textContent.startsWith({})) return [at.clientX, at.clientY];
               }}
               return null;
             }})()",
        json!(tip)
    );
    let place = browser.ask(&script);
    let number = |nth: usize| place[nth].as_f64();
    let place = number(0).zip(number(1));
    place.unwrap_or_else(|| panic!("no tip in all the lanes begins with {tip}"))
}
