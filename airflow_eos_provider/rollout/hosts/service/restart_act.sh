# One restart of one worker, on the worker's machine: restart_act.py sends this script, and what it needs, as lines.
#
# It wants a POSIX shell, coreutils, grep and Linux' /proc. Durations are in hundredths of a second. A process is known
# by its pid and its start ticks, and with the boot id among all starts of the machine.

boot_id=
read -r boot_id </proc/sys/kernel/random/boot_id
folder=${state:-${XDG_STATE_HOME:-${HOME:-/nonexistent}/.local/state}}/airflow_eos_provider
record=$folder/$name.restart
newline='
'

# Hundredths of a second since the boot, in $now. Nobody sets that clock.
look_at_clock() {
  read -r now rest </proc/uptime
  now=${now%.*}${now#*.}
}

pause() { sleep 0.1 2>/dev/null || sleep 1; }

# The stat line of a pid: $ticks. False where there is no such process, or only a zombie; one
# with more threads than the ended one is still at work.
look_at() {
  ticks=
  { IFS= read -r stat </proc/"$1"/stat; } 2>/dev/null || return 1
  case $stat in *') '*) ;; *) stat=$(cat /proc/"$1"/stat 2>/dev/null) || return 1 ;; esac
  set -f
  # shellcheck disable=SC2086
  set -- ${stat##*') '}
  set +f
  [ $# -ge 20 ] || return 1
  case $1 in X | x) return 1 ;; Z) [ "${18}" -gt 1 ] || return 1 ;; esac
  ticks=${20}
}

is_same() { look_at "$1" && [ "$ticks" = "$2" ]; }

# Whether something listens at one of the worker's addresses (LISTEN is 0A, proc(5)).
is_listening() {
  [ -n "$listen" ] || return 1
  grep -qE "^ *[0-9]+: ($listen) [0-9A-F]+:[0-9A-F]+ 0A " /proc/self/net/tcp /proc/self/net/tcp6 2>/dev/null
}

# --- what a controller asks ------------------------------------------------------------------------------------------

# The record as it is, in $text, whether its helper is at it, in $at_work, and a name for both in $seen. The helper's last
# word comes before its end: so whoever finds it gone reads once more. No process is started for this.
look_at_record() {
  text='' lines=0 helper='' step=''
  while IFS= read -r line; do
    text=$text$line$newline lines=$((lines + 1))
    case $line in
    'helper '*) helper=${line#helper } ;;
    'act '* | 'phase '*) step=$step.${line#* } ;;
    end) break ;;
    esac
  done 2>/dev/null <"$record"
  at_work=no
  helper_pid=${helper%% *} helper=${helper#* }
  [ -n "$helper" ] && [ "${helper#* }" = "$boot_id" ] && is_same "$helper_pid" "${helper%% *}" && at_work=yes
  seen=$lines$step.$at_work
}

show() {
  if [ -e "$record" ] && [ ! -r "$record" ]; then echo closed; fi
  look_at_record
  [ $at_work = yes ] || look_at_record
  look_at_clock
  printf '%sat_work %s\nrecord %s\nseen %s\nuptime %s %s\n' "$text" "$at_work" "$record" "$seen" "$now" "$boot_id"
}

# The same once something is to be said: the record is another one, its helper has ended, or the time is over.
watch_record() {
  look_at_clock
  until_then=$((now + $2))
  while look_at_record && [ "$seen" = "$1" ] && [ $at_work = yes ]; do
    look_at_clock
    [ "$now" -lt "$until_then" ] || break
    pause
  done
  show
}

# Removes the record of one act, and of no other; and the folder with the last one.
forget() {
  grep -qx "act $1" "$record" 2>/dev/null && rm -f "$record"
  rmdir "$folder" 2>/dev/null
  echo forgotten
}

case $op in
show) show && exit ;;
watch) watch_record "$1" "$2" && exit ;;
forget) forget "$1" && exit ;;
esac

# --- the act ---------------------------------------------------------------------------------------------------------

# Reads what is to be done. Values have their backslashes and newlines escaped.
read_task() {
  words=0 statuses=0 variables=0
  while IFS= read -r line; do
    key=${line%% *} value=${line#* }
    case $value in *\\*)
      value=$(printf '%b_' "$value")
      value=${value%_}
      ;;
    esac
    case $key in
    end) return 0 ;;
    word) words=$((words + 1)) && eval "eos_word_$words=\$value" ;;
    status) statuses=$((statuses + 1)) && eval "eos_status_$statuses=\$value" ;;
    variable) variables=$((variables + 1)) && eval "eos_variable_$variables=\$value" ;;
    kind | act | rollout | replaces | sha256 | stop_pid | stop_ticks | grace | kill | port | watch | listen | cwd | log | pid_file | pid_file_said)
      eval "$key=\$value"
      ;;
    esac
  done
  return 1
}

# Writes the record in one step. Where the disk is full, over the blocks that it has: what stands behind 'end' is old.
write_record() {
  text="schema 1
act $act
rollout $rollout
replaces $replaces
sha256 $sha256
helper $me $my_ticks $boot_id
phase $phase
pid $new_pid
ticks $new_ticks
failure $failure
code $code
log_from $log_from
detail $detail
${events}end"
  if (umask 077 && printf '%s\n' "$text" >"$record.$me" && mv -f "$record.$me" "$record") 2>/dev/null; then
    return 0
  fi
  rm -f "$record.$me" 2>/dev/null
  [ -f "$record" ] && printf '%s\n' "$text" | dd of="$record" conv=notrunc 2>/dev/null
}

say() {
  events="${events}event $1$newline"
  write_record
}

# The same of a moment of the restart, with the time: say_moment stopped|started WORDS
say_moment() {
  look_at_clock
  events="${events}moment $1 $now$newline"
  say "$2"
}

move_on() {
  phase=$1
  write_record
}

fail() {
  failure=$1 detail=$2
  move_on failed
  finish
}

finish() {
  rm -f "$mine" "$folder/$name.out.$me" 2>/dev/null
  exit 0
}

# The claim: of two acts, each writes its own and then looks for others', so that at least one sees the other. A claim
# is named by its owner's start, so that one whose owner has ended can be removed by anybody.
claim() {
  tries=0
  while :; do
    # Once more where another worker's last record was just removed, and the folder with it.
    (umask 077 && { mkdir -p "$folder" && : >"$mine" || { mkdir -p "$folder" && : >"$mine"; }; }) 2>/dev/null || return 2
    others=0
    for other in "$folder/$name".claim.*; do
      [ "$other" != "$mine" ] && [ -e "$other" ] || continue
      owner=${other##*.claim.}
      owner_boot=${owner%%.*} owner=${owner#*.}
      if [ "$owner_boot" = "$boot_id" ] && is_same "${owner%%.*}" "${owner#*.}"; then
        others=$((others + 1))
      else
        rm -f "$other"
      fi
    done
    [ $others -eq 0 ] && return 0
    rm -f "$mine"
    tries=$((tries + 1))
    [ $tries -lt 5 ] || return 1
    sleep "0.$((me % 7 + 1))" 2>/dev/null || sleep 1
  done
}

# Says how it stands to the caller, and leaves it. A caller that is gone is no reason to end.
answer() {
  trap '' PIPE
  printf '%s\n' "$1" 2>/dev/null
  exec </dev/null >/dev/null 2>&1
  trap - PIPE
}

refuse() {
  rm -f "$mine" 2>/dev/null
  answer "$1"
  exit 0
}

# Whether the record is that of this act, or of the same one by another controller, which has ended.
is_done() {
  [ -r "$record" ] || return 1
  grep -qxF "act $act" "$record" && return 0
  [ -n "$rollout" ] && grep -qxF "rollout $rollout" "$record" && grep -qxF "replaces $replaces" "$record" &&
    grep -qxF "sha256 $sha256" "$record" && grep -qE '^phase (done|failed)$' "$record"
}

# Whether another process has come since the controller has looked: nothing is touched then. The pid file is written
# before a worker opens its port.
has_moved() {
  case $kind in
  commands) is_replaced ;;
  *)
    said=
    { read -r said rest <"$pid_file"; } 2>/dev/null
    [ "$said" != "$pid_file_said" ] && return 0
    [ "$stop_pid" -ne 0 ] && look_at "$stop_pid" && [ "$ticks" != "$stop_ticks" ]
    ;;
  esac
}

begin() {
  trap : HUP INT TERM # a handler: what is ignored would be ignored by the worker as well
  cd / || exit 1
  read -r me rest </proc/self/stat
  look_at "$me" && my_ticks=$ticks
  read_task || refuse 'not whole'
  phase=stopping new_pid=0 new_ticks=0 failure='' code='' log_from=0 detail='' events=''
  mine=$folder/$name.claim.$boot_id.$me.$my_ticks
  claim
  case $? in 1) refuse 'in flight' ;; 2) refuse "no record $record" ;; esac
  # Of an order that was given twice, since its answer was lost, the second is none. Nor is one of a rollout whose very
  # act another controller has carried out since this one has looked.
  is_done && refuse begun
  # What killed acts have left: none but this one is at work.
  for left in "$record".[0-9]* "$folder/$name".out.*; do
    [ -e "$left" ] && rm -f "$left"
  done
  has_moved && refuse moved
  [ -z "$log" ] || log_from=$(stat -L -c %s -- "$log" 2>/dev/null) || log_from=0
  write_record || refuse "no record $record"
  answer begun
  case $kind in
  commands) restart_by_command ;;
  started) stop_and_start ;;
  *) fail broken "an act of the unknown kind $kind" ;;
  esac
  finish
}

# Waits until the new process listens, or its first seconds are over; what comes later is the gate's.
watch_worker() {
  look_at_clock
  until_then=$((now + watch))
  while is_same "$new_pid" "$new_ticks"; do
    is_listening && return 0
    look_at_clock
    [ "$now" -lt "$until_then" ] || return 0
    pause
  done
  fail 'ended at once' "pid $new_pid ended right after its start"
}

started_as() {
  say_moment started "started as pid $new_pid"
  move_on started
  watch_worker
  move_on done
}

# --- another supervisor, by its own commands -------------------------------------------------------------------------

# Runs numbered words: run_words PREFIX COUNT COMMAND-BEFORE-THEM…
run_words() {
  prefix=$1 count=$2
  shift 2
  number=1
  while [ $number -le "$count" ]; do
    eval "set -- \"\$@\" \"\$eos_${prefix}_$number\""
    number=$((number + 1))
  done
  "$@"
}

# The pid that the status command names, in $named; empty where it names none.
ask_status() {
  named='' before='' said=$(run_words status "$statuses" timeout 10 2>&1 </dev/null | head -c 4096)
  set -f
  # shellcheck disable=SC2046
  set -- $(printf '%s\n' "$said" | cut -d ';' -f 1 | tr -cs 'A-Za-z0-9_.\n-' ' ')
  set +f
  [ $# -eq 1 ] && set -- pid "$1"
  for word in "$@"; do
    case $before in pid | PID | Pid | MainPID)
      case $word in *[!0-9]*) ;; *) named=$word && break ;; esac
      ;;
    esac
    before=$word
  done
  [ "$named" != 0 ] || named=
  said=$(printf '%s\n' "$said" | tail -n 1 | tr -d '\r' | head -c 300)
}

last_line() { tail -n 1 "$folder/$name.out.$me" 2>/dev/null | tr -d '\r' | head -c 300; }

# Whether another process runs than the one that was to be replaced, in $new_pid and $new_ticks.
is_replaced() {
  ask_status
  [ -n "$named" ] && look_at "$named" || return 1
  [ "$named" != "$stop_pid" ] || [ "$ticks" != "$stop_ticks" ] || return 1
  new_pid=$named new_ticks=$ticks
}

# Between the stop and the start stands the supervisor's own client, so nothing here ends it, however long it takes.
restart_by_command() {
  if [ "$stop_pid" -ne 0 ]; then
    say "restarting pid $stop_pid by its supervisor's command"
  else
    say "starting it by its supervisor's command"
  fi
  out=$folder/$name.out.$me
  (umask 077 && : >"$out") 2>/dev/null || out=/dev/null
  fresh=
  # A command in the background ignores SIGINT and SIGQUIT, and so would a worker that it starts itself.
  env --default-signal=INT,QUIT true 2>/dev/null && fresh='env --default-signal=INT,QUIT'
  # shellcheck disable=SC2086
  run_words word "$words" $fresh </dev/null >"$out" 2>&1 &
  client=$!
  look_at "$client" && client_ticks=$ticks || client_ticks=0
  look_at_clock
  give_up=$((now + grace + kill + port)) gone_at='' failed_at=''
  while :; do
    look_at_clock
    if [ -n "$client" ] && ! is_same "$client" "$client_ticks"; then
      wait "$client"
      code=$? client=
      detail=$(last_line)
      failed_at=
      if [ "$code" -ne 0 ]; then
        say "the restart command ended with $code: $detail"
        case $detail in *[Tt]imeout* | *"got TERM"*) ;; *) failed_at=$now ;; esac
      fi
    fi
    if [ "$stop_pid" -eq 0 ] || ! is_same "$stop_pid" "$stop_ticks"; then
      if [ "$phase" = stopping ]; then
        gone_at=$now
        [ "$stop_pid" -eq 0 ] || say_moment stopped "pid $stop_pid has ended"
        move_on starting
      fi
      if is_replaced; then
        started_as
        return
      fi
    fi
    look_at_clock
    if [ -z "$client" ]; then
      if [ -n "$failed_at" ] && [ "$now" -ge $((failed_at + 500)) ]; then break; fi
      if [ -n "$gone_at" ] && [ "$now" -ge $((gone_at + watch)) ]; then break; fi
    fi
    [ "$now" -lt "$give_up" ] || break
    pause
  done
  give_up_by_command
}

give_up_by_command() {
  if [ -n "$client" ]; then
    fail 'does not end' "the restart command has not ended, and runs on as pid $client"
  fi
  if [ -n "$failed_at" ]; then
    fail 'command failed' "exit code $code: $detail"
  fi
  if [ "$stop_pid" -ne 0 ] && is_same "$stop_pid" "$stop_ticks"; then
    fail 'does not end' "the restart command ended with $code, and pid $stop_pid runs on"
  fi
  fail 'not started' "its status: $said"
}

# --- a start command -------------------------------------------------------------------------------------------------

# The members of the family that are alive, as 'pid/ticks' words in $alive. A member once seen stays one.
look_at_family() {
  all=$(cat /proc/[0-9]*/stat 2>/dev/null)
  pairs=
  old_ifs=$IFS
  IFS=$newline
  set -f
  for stat in $all; do
    IFS=' '
    # shellcheck disable=SC2086
    set -- "${stat%% *}" ${stat##*') '}
    [ $# -ge 21 ] && pairs="$pairs $1/$3/${21}"
    IFS=$newline
  done
  IFS=$old_ifs
  grown=yes
  while [ -n "$grown" ]; do
    grown=
    for pair in $pairs; do
      pid=${pair%%/*} rest=${pair#*/}
      above=${rest%%/*} began=${rest#*/}
      case " $family " in *" $pid/$began "*) continue ;; esac
      case " $living " in *" $above "*) ;; *) continue ;; esac
      family="$family $pid/$began" living="$living $pid" grown=yes
    done
  done
  set +f
  alive='' living=''
  for member in $family; do
    is_same "${member%/*}" "${member#*/}" && alive="$alive $member" && living="$living ${member%/*}"
  done
}

# Sends a signal to the whole family, and to what it starts meanwhile, until it has ended: end_family SIGNAL DURATION
end_family() {
  asked=
  look_at_clock
  until_then=$((now + $2))
  while look_at_family && [ -n "$alive" ]; do
    for member in $alive; do
      case " $asked " in *" $member "*) continue ;; esac
      asked="$asked $member"
      if ! kill -s "$1" "${member%/*}" 2>/dev/null && is_same "${member%/*}" "${member#*/}"; then
        fail 'not permitted' "process ${member%/*} belongs to another user"
      fi
    done
    look_at_clock
    [ "$now" -lt "$until_then" ] || return 1
    pause
  done
}

stop_and_start() {
  mask=022 limits=
  if [ "$stop_pid" -ne 0 ] && is_same "$stop_pid" "$stop_ticks"; then
    while read -r key value rest; do
      [ "$key" = Umask: ] && mask=$value
    done 2>/dev/null </proc/"$stop_pid"/status
    limits=$(cat /proc/"$stop_pid"/limits 2>/dev/null)
    say "stopping pid $stop_pid"
    family=$stop_pid/$stop_ticks living=$stop_pid
    if ! end_family TERM "$grace"; then
      for member in $alive; do
        say "pid ${member%/*} did not stop within $((grace / 100)) s and was killed"
      done
      end_family KILL "$kill" || fail 'does not end' "process$alive does not end, not even by SIGKILL"
    fi
    say_moment stopped "pid $stop_pid has ended"
  fi
  look_at_clock
  until_then=$now
  [ "$stop_pid" -eq 0 ] || until_then=$((now + port))
  while is_listening; do
    look_at_clock
    [ "$now" -lt "$until_then" ] || fail 'port is held' 'its port is still held'
    pause
  done
  move_on starting
  pause # so that the new process is younger than the file that it reads
  log_from=$(stat -L -c %s -- "$log" 2>/dev/null) || log_from=0 # without the last words of the old one
  launch
  started_as
}

# What becomes the worker: it has a session of its own, says its pid, writes that into the pid file, and then is the
# worker. So nobody ever finds a worker that runs with a pid file that names another one.
become_worker='
read -r pid rest </proc/self/stat
(: >>"$1") 2>/dev/null || { echo "its log $1 cannot be written"; exit 1; }
(PATH=$3; echo "$pid" >"$2.$pid.eos" && mv -f "$2.$pid.eos" "$2" || { rm -f "$2.$pid.eos"; exit 1; }) 2>/dev/null || {
  echo "its pid file $2 cannot be written"; exit 1; }
echo "pid $pid"
exec >>"$1" 2>&1
shift 3
exec "$@"
'

# Runs a command in a session of its own, without waiting for it. The worker's own PATH may lack setsid.
in_session() {
  if "$eos_setsid" -f true 2>/dev/null; then "$eos_setsid" -f "$@"; else "$eos_setsid" "$@" & fi
}

# Gives this shell the resource limits of the process that is replaced; what may not be raised to that stays.
set_limits() {
  read -r own rest </proc/self/stat
  while IFS= read -r line; do
    option=
    case $line in
    'Max cpu time '*) option=cpu line=${line#'Max cpu time'} ;;
    'Max file size '*) option=fsize line=${line#'Max file size'} ;;
    'Max data size '*) option=data line=${line#'Max data size'} ;;
    'Max stack size '*) option=stack line=${line#'Max stack size'} ;;
    'Max core file size '*) option=core line=${line#'Max core file size'} ;;
    'Max resident set '*) option=rss line=${line#'Max resident set'} ;;
    'Max processes '*) option=nproc line=${line#'Max processes'} ;;
    'Max open files '*) option=nofile line=${line#'Max open files'} ;;
    'Max locked memory '*) option=memlock line=${line#'Max locked memory'} ;;
    'Max address space '*) option=as line=${line#'Max address space'} ;;
    'Max nice priority '*) option=nice line=${line#'Max nice priority'} ;;
    'Max realtime priority '*) option=rtprio line=${line#'Max realtime priority'} ;;
    esac
    [ -n "$option" ] || continue
    set -f
    # shellcheck disable=SC2086
    set -- $line
    set +f
    prlimit --pid "$own" "--$option=$1:$2" 2>/dev/null
  done <<LIMITS
$limits
LIMITS
}

launch() {
  eos_setsid=$(command -v setsid)
  said=$(
    umask "$mask"
    set_limits
    mkdir -p "${log%/*}" "${pid_file%/*}" 2>/dev/null
    cd "$cwd" 2>/dev/null || { echo "its working folder $cwd cannot be entered" && exit 1; }
    set -- "$log" "$pid_file" "$PATH" # mv need not be in the worker's own PATH
    number=1
    while [ $number -le "$words" ]; do
      eval "set -- \"\$@\" \"\$eos_word_$number\""
      number=$((number + 1))
    done
    unset LC_ALL SSH_CLIENT SSH_CONNECTION SSH_TTY SSH_AUTH_SOCK SSH_ORIGINAL_COMMAND XDG_SESSION_ID \
      XDG_SESSION_TYPE XDG_SESSION_CLASS XDG_RUNTIME_DIR DBUS_SESSION_BUS_ADDRESS OLDPWD
    eos_number=1
    while [ $eos_number -le "$variables" ]; do
      eval "export \"\$eos_variable_$eos_number\""
      eos_number=$((eos_number + 1))
    done
    in_session /bin/sh -c "$become_worker" sh "$@" </dev/null 2>/dev/null
  )
  case $said in
  'pid '*) new_pid=${said#pid } ;;
  *) fail 'no program' "${said:-it could not be started}" ;;
  esac
  look_at "$new_pid" && new_ticks=$ticks || new_ticks=0
}

[ "$op" != begin ] || begin
