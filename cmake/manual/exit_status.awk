# The table of docs/exit-status.md as the section EXIT STATUS.
function quoted(text) {
  gsub(/^ +| +$/, "", text)
  gsub(/–/, "\\(en", text)
  gsub(/\\[^(]/, "\\e", text)
  gsub(/-/, "\\-", text)
  return text
}
BEGIN { FS = "|" }
/^\| *[0-9]+ *\|/ {
  print ".TP\n.B " quoted($2) "\n" quoted($3) ". Submit again: " quoted($4) "."
}
