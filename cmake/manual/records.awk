# Converts the program's `--help` to tab-separated records, one per line: the source of the manual page and the completions.
#   command NAME SUMMARY                      begins a command (from the generator)
#   text LINE, item NAME TEXT, group TITLE    text around the options
#   option NAME KIND METAVAR CHOICES HELP     KIND is switch (--[no-]x), flag or value; CHOICES separated by blanks
function flush_option() {
  if (name == "") return
  choices = ""
  if (match(help, /one of [A-Za-z0-9_, -]+( \[|;)/)) {
    choices = substr(help, RSTART + 7, RLENGTH - 7)
    sub(/( \[|;)$/, "", choices)
    gsub(/,/, "", choices)
  }
  if (kind == "" && metavar == "" && help !~ /\[[^]]*\]$/) kind = "flag"
  if (kind == "") kind = "value"
  print "option", name, kind, metavar, choices, help
  name = ""
}
BEGIN { OFS = "\t" }
{ sub(/[ \t\r]+$/, "") }
/^@command / {
  flush_option()
  summary = $0
  sub(/^@command [^ ]+ */, "", summary)
  print "command", $2, summary
  next
}
/^  --/ {
  flush_option()
  line = substr($0, 3)
  gap = match(line, /  +/)
  left = gap ? substr(line, 1, gap - 1) : line
  help = gap ? substr(line, gap + RLENGTH) : ""
  kind = ""
  metavar = ""
  if (sub(/^--\[no-\]/, "--", left)) kind = "switch"
  if (match(left, / /)) {
    metavar = substr(left, RSTART + 1)
    left = substr(left, 1, RSTART - 1)
  }
  name = substr(left, 3)
  next
}
/^      / && name != "" {
  sub(/^ +/, "")
  help = help (help == "" ? "" : " ") $0
  next
}
{ flush_option() }
/^[A-Za-z][A-Za-z, ]*:$/ {
  title = substr($0, 1, length($0) - 1)
  print "group", toupper(substr(title, 1, 1)) substr(title, 2)
  next
}
/^  [A-Za-z0-9_-]+  +[^ ]/ {
  item = $1
  sub(/^ +[^ ]+ +/, "")
  print "item", item, $0
  next
}
{ print "text", $0 }
END { flush_option() }
