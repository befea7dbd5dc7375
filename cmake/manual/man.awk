# Converts records (records.awk) to the COMMANDS section of the manual page, in man macros.
function quoted(text) {
  gsub(/\\/, "\\e", text)
  gsub(/-/, "\\-", text)
  sub(/^[.']/, "\\\\\\&&", text)
  return text
}
function close_block() {
  if (literal) print ".EE"
  literal = 0
}
BEGIN { FS = "\t" }
$1 == "command" {
  close_block()
  print ".SS lockstep " quoted($2)
  first = 1
  next
}
# Text around the options keeps the program's layout; the usage line may wrap.
$1 == "text" {
  if ($2 == "") { close_block(); next }
  if (first) {
    sub(/^usage: /, "", $2)
    print quoted($2)
    first = 0
    next
  }
  if (!literal) print ".PP\n.EX"
  literal = 1
  print quoted($2)
  next
}
$1 == "item" {
  close_block()
  print ".TP\n.B " quoted($2) "\n" quoted($3)
  next
}
$1 == "group" {
  close_block()
  print ".PP\n.I " quoted($2)
  next
}
$1 == "option" {
  close_block()
  label = "\\fB" quoted(($3 == "switch" ? "--[no-]" : "--") $2) "\\fR"
  if ($3 == "value") label = label " \\fI" ($4 == "" ? "VALUE" : quoted($4)) "\\fR"
  print ".TP\n" label "\n" quoted($6)
}
END { close_block() }
