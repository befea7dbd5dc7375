# Converts the first table of docs/exit-status.md, the program's own, to the section EXIT STATUS.
function quoted(text) {
  gsub(/^ +| +$/, "", text)
  gsub(/–/, "\\(en", text)
  gsub(/\\[^(]/, "\\e", text)
  gsub(/-/, "\\-", text)
  return text
}
BEGIN { FS = "|" }
/^\| *launcher/ { exit }
/^\| *[0-9]+ *\|/ {
  print ".TP\n.B " quoted($2) "\n" quoted($3) ". Submit again: " quoted($4) "."
}
