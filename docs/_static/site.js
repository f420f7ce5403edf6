// The theme's buttons that open a branch of the navigation have no name for screen readers.
document.addEventListener("DOMContentLoaded", () => {
  for (const summary of document.querySelectorAll(".bd-sidebar-primary summary")) {
    const link = summary.closest("li").querySelector("a");
    summary.setAttribute("aria-label", `Pages below ${link ? link.textContent.trim() : "this one"}`);
  }
});
