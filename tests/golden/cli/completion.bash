# Completion of triptych for bash, printed by 'triptych --bash-completion'.
_triptych() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
  local command=${COMP_WORDS[1]} words='' files=''
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    words='plan run resume report query attribute export synth perplexity doctor --help --version --bash-completion'
  else
    case "$command:$previous" in
    plan:--db) files=1 ;;
    plan:--set) return ;;
    run:--db) files=1 ;;
    run:--set) return ;;
    run:--cache) files=1 ;;
    resume:--db) files=1 ;;
    resume:--run) return ;;
    resume:--cache) files=1 ;;
    report:--db) files=1 ;;
    report:--run) return ;;
    report:--format) words='terminal markdown csv json' ;;
    query:--db) files=1 ;;
    query:--format) words='table csv json' ;;
    query:--limit) return ;;
    attribute:--db) files=1 ;;
    attribute:--cell) return ;;
    attribute:--run) return ;;
    attribute:--rules) files=1 ;;
    attribute:--phase) words='decode prefill' ;;
    attribute:--format) words='table csv json' ;;
    export:--db) files=1 ;;
    export:--cell) return ;;
    export:--run) return ;;
    export:--output) files=1 ;;
    synth:--seed) return ;;
    synth:--dtype) words='f32 f16 bf16' ;;
    synth:--set) return ;;
    perplexity:--weights) return ;;
    perplexity:--runtime) return ;;
    perplexity:--window) return ;;
    perplexity:--threads) return ;;
    perplexity:--format) words='table csv json' ;;
    *)
      case "$command" in
        plan) words='--db --set --dry-run --help'; files=1 ;;
        run) words='--db --set --cache --force --quiet --help'; files=1 ;;
        resume) words='--db --run --cache --quiet --help' ;;
        report) words='--db --run --format --help' ;;
        query) words='--db --format --limit --help' ;;
        attribute) words='--db --cell --run --rules --phase --format --allow-dropped --help'; files=1 ;;
        export) words='--db --cell --run --output --help' ;;
        synth) words='--seed --dtype --set --help'; files=1 ;;
        perplexity) words='--weights --runtime --window --threads --format --help'; files=1 ;;
        doctor) words='--help' ;;
      esac ;;
    esac
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  if [ -n "$files" ] && [ "${current:0:1}" != - ]; then
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  fi
}
complete -o filenames -F _triptych triptych
