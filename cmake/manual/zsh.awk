# Converts records (records.awk) to the body of zsh's completion function.
function described(text) {
  gsub(/'/, "'\\''", text)
  gsub(/[][]/, "\\\\&", text)
  return text
}
function specification(spec) { arguments[command] = arguments[command] " \\\n        '" spec "'" }
BEGIN { FS = "\t" }
$1 == "command" {
  command = $2
  order[++count] = command
  summary = $3
  gsub(/'/, "'\\''", summary)
  print "    '" command ":" summary "'"
  next
}
$1 == "text" && $2 ~ ("^(usage: )?lockstep " command " [A-Z]+ ") { takes_item[command] = 1 }
$1 == "text" && $2 ~ /^models: / { models = substr($2, 9) }
$1 == "item" && takes_item[command] { items[command] = items[command] " " $2 }
$1 == "option" {
  help = described($6)
  if ($3 == "flag") { specification("--" $2 "[" help "]"); next }
  if ($3 == "switch") {
    specification("(--no-" $2 ")--" $2 "[" help "]")
    specification("(--" $2 ")--no-" $2 "[" help "]")
    next
  }
  action = "_files"
  if ($5 != "") action = "(" $5 ")"
  if ($2 == "model") action = "(@MODELS@)"
  specification("--" $2 "=[" help "]:" $2 ":" action)
}
END {
  print "  )"
  print "  if (( CURRENT == 2 )); then"
  print "    _describe command commands -- && return"
  print "    _arguments '--help[show the commands]' '--version[show the version]'"
  print "    return"
  print "  fi"
  print "  local command=$words[2]"
  print "  shift words"
  print "  (( CURRENT-- ))"
  print "  case $command in"
  for (i = 1; i <= count; i++) {
    text = arguments[order[i]]
    gsub(/@MODELS@/, models, text)
    rest = items[order[i]] == "" ? "*:file:_files" : "1:page:(" substr(items[order[i]], 2) ")"
    print "    " order[i] ")\n      _arguments '--help[show the options]' '" rest "'" text "\n      ;;"
  }
  print "  esac"
}
