// No page has formulas in TeX, so MathJax is not loaded.
