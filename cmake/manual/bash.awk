# Converts records (records.awk) to the two functions that bash completion calls: options of a command, values of an option.
BEGIN { FS = "\t" }
$1 == "command" {
  command = $2
  commands = commands " " command
  next
}
# `lockstep bench PAGE`: the items listed before the options are the possible values.
$1 == "text" && $2 ~ ("^(usage: )?lockstep " command " [A-Z]+ ") { takes_item[command] = 1 }
$1 == "text" && $2 ~ /^models: / { models = substr($2, 9) }
$1 == "item" && takes_item[command] { items[command] = items[command] " " $2 }
$1 == "option" {
  options[command] = options[command] " --" $2
  if ($3 == "switch") options[command] = options[command] " --no-" $2
  if ($3 == "switch") values[command, $2] = "true false"
  if ($5 != "") values[command, $2] = $5
  if ($2 == "model") names_model[command] = 1
  order[++count] = command SUBSEP $2
}
END {
  n = split(commands, list, " ")
  print "_lockstep_options() {\n  case $1 in"
  print "    '') echo \"" substr(commands, 2) " --help --version\" ;;"
  for (i = 1; i <= n; i++) {
    print "    " list[i] ") echo \"" substr(options[list[i]], 2) " --help\" ;;"
  }
  print "  esac\n}\n"
  print "_lockstep_values() {\n  case $1$2 in"
  for (i = 1; i <= n; i++) {
    if (items[list[i]] != "") print "    " list[i] ") echo \"" substr(items[list[i]], 2) "\" ;;"
    if (names_model[list[i]] && models != "") print "    " list[i] "--model) echo \"" models "\" ;;"
  }
  for (i = 1; i <= count; i++) {
    split(order[i], key, SUBSEP)
    if (values[order[i]] != "") print "    " key[1] "--" key[2] ") echo \"" values[order[i]] "\" ;;"
  }
  print "  esac\n}"
}
