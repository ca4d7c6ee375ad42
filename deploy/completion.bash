# Completion of commands, options, tenants and key prefixes for bash. In ~/.bashrc:
#
#   source /path/to/completion.bash
#
# For zsh put `autoload -U bashcompinit && bashcompinit` before it. The names of tenants and keys are asked of the
# database at each Tab, so `tollgate` must reach it, as every command must.

source <(tollgate --completions bash)

_tollgate_with_names() {
  local before="${COMP_WORDS[COMP_CWORD - 1]}" word="${COMP_WORDS[COMP_CWORD]}" names=()
  case "$before" in
    # The first column of a table ends with two blanks: the name of a tenant may have one.
    --tenant) mapfile -t names < <(tollgate list-tenants 2>/dev/null | sed -e 1d -e 's/  .*//') ;;
    --prefix | --key) mapfile -t names < <(tollgate list-keys 2>/dev/null | sed -e 1d -e 's/  .*//') ;;
    *)
      _tollgate "$@"
      return
      ;;
  esac
  local name
  COMPREPLY=()
  for name in "${names[@]}"; do
    if [[ "$name" == "$word"* ]]; then COMPREPLY+=("$(printf '%q' "$name")"); fi
  done
}

complete -F _tollgate_with_names tollgate
