# shellcheck shell=bash
#
# Sourced by the commands beside it: finds or makes the one virtual environment of this checkout.
#
#   set_up_environment      sets `checkout` and `venv`; installs and compiles only if something changed
#   clean_compiled          removes what was compiled
#   need_debian_package     makes sure of a package of the operating system
#   need_redis_server       makes sure of a redis-server, without the service that Debian's package would start
#   want_chromium           installs a browser if that is possible
#
# The environment is $TIDELOG_VENV or, unset, `<checkout>.venv` beside the checkout; where nothing can be made there,
# `.venv` inside it. It holds files of ours:
#
#   .tidelog-stamp        what was installed: missing or different means install
#   .tidelog-compiled     what was compiled, into the checkout: missing or different means compile
#   .tidelog-installing   there while installing: found later, an install was cut short and is redone from nothing
#   .tidelog-lock         held while installing, so that two commands started at once install once
#
# Nothing here writes to stdout: what `bin/tidelog` prints may be parsed.

checkout=$(dirname -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")")
venv=
found_python=
apt_is_updated=no

say() {
    printf '%s\n' "$*" >&2
}

fail() {
    say "$(basename -- "$0"): $*"
    exit 1
}

# --- the environment ------------------------------------------------------------------------------------------------

set_up_environment() {
    local beside=$checkout.venv inside=$checkout/.venv
    if [[ -n ${TIDELOG_VENV:-} ]]; then beside=$(readlink -m -- "$TIDELOG_VENV"); fi

    for venv in "$beside" "$inside"; do
        if is_current "$venv" && is_compiled "$venv"; then return; fi
        if [[ -n ${TIDELOG_VENV:-} ]]; then break; fi
    done

    venv=$beside
    if [[ -z ${TIDELOG_VENV:-} ]] && ! can_write_folder "$venv"; then
        say "Cannot write to $venv: the virtual environment goes to $inside."
        venv=$inside
    fi
    can_write_folder "$venv" || fail "cannot write to $venv: set TIDELOG_VENV to a folder that can be written"
    # What is not ours is never emptied: a folder given by mistake is refused before anything is put in it.
    if [[ ! -e $venv/.tidelog-lock && -n $(ls -A -- "$venv") ]] && ! works "$venv"; then
        fail "$venv is no virtual environment of Python 3.11 or newer: set TIDELOG_VENV to another folder"
    fi

    need_debian_package util-linux flock
    exec 9>>"$venv/.tidelog-lock"
    flock 9
    if ! is_current "$venv"; then install_into "$venv"; fi
    if ! is_compiled "$venv"; then compile_with "$venv"; fi
    exec 9>&-
}

# What an up-to-date environment was made from. The interpreter is named by its resolved path, which has the version
# in it; the folders are part of it because a virtual environment does not survive being moved.
describe_environment() {
    local digest python
    digest=$(sha256sum <"$checkout/pyproject.toml") || return
    python=$(readlink -e -- "$1/bin/python") || return
    printf '%s\n' "pyproject ${digest%% *}" "python $python" "checkout $checkout" "venv $1"
}

is_current() {
    [[ -r $1/.tidelog-stamp && ! -e $1/.tidelog-installing ]] &&
        [[ $(<"$1/.tidelog-stamp") == "$(describe_environment "$1")" ]]
}

# What the compiled modules were made from.
describe_compiled() {
    local digest python
    digest=$(cd -- "$checkout" && find setup.py src/tidelog -name '*.py' -print0 | LC_ALL=C sort -z |
        xargs -0 sha256sum | sha256sum) || return
    python=$(readlink -e -- "$1/bin/python") || return
    printf '%s\n' "sources ${digest%% *}" "python $python" "checkout $checkout"
}

is_compiled() {
    if [[ ${TIDELOG_COMPILE:-} == no ]]; then return; fi
    [[ -r $1/.tidelog-compiled && $(<"$1/.tidelog-compiled") == "$(describe_compiled "$1")"* ]] || return
    # Without a compiler there is nothing to look for.
    [[ $(tail -n 1 -- "$1/.tidelog-compiled") == "not compiled" || -n $(find "$checkout/src" -maxdepth 1 -name '*.so') ]]
}

compile_with() {
    local described output outcome=compiled
    described=$(describe_compiled "$1")
    rm -f -- "$1/.tidelog-compiled"
    # What was compiled of a module that is gone, or no longer compiled, would stay in its place.
    find "$checkout/src" -name '*.so' -delete
    say "Compiling the hot modules (some two minutes) ..."
    if ! output=$(cd -- "$checkout" && TIDELOG_COMPILE=must "$1/bin/python" setup.py build_ext --inplace 2>&1); then
        clean_compiled
        outcome="not compiled"
        if [[ ${TIDELOG_COMPILE:-} == must ]]; then
            say "$output"
            fail "cannot compile the hot modules (see above)"
        fi
        say "$(tail -n 3 <<<"$output")"
        say "The hot modules cannot be compiled (bin/build says more): Tidelog works, slower."
    fi
    printf '%s\n' "$described" "$outcome" >"$1/.tidelog-compiled"
}

# Changing to a branch and back makes sources look newer than what was compiled from them; the tests go by that.
touch_compiled() {
    find "$checkout/src" -name '*.so' -exec touch -- {} +
}

clean_compiled() {
    find "$checkout/src" -name '*.so' -delete
    rm -rf -- "$checkout/build"
}

can_write_folder() {
    mkdir -p -- "$1" 2>/dev/null && [[ -w $1 ]]
}

works() {
    "$1/bin/python" -I -c "$python_is_recent; import pip" 2>/dev/null
}

install_into() {
    local folder=$1 from_nothing=no
    say "Setting up $folder ..."

    # An environment that works is kept, and pip installs what changed. One that was left half-way is made anew: pip
    # takes a package for installed that has its metadata and not yet all its files.
    if [[ -e $folder/.tidelog-installing ]] || ! works "$folder"; then from_nothing=yes; fi
    : >"$folder/.tidelog-installing"
    rm -f -- "$folder/.tidelog-stamp"

    if [[ $from_nothing == yes ]]; then
        find_python
        find "$folder" -mindepth 1 -maxdepth 1 ! -name '.tidelog-*' -exec rm -rf -- {} +
        run_quietly "$found_python" -I -m venv "$folder" || fail "cannot make a virtual environment (see above)"
    fi
    PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1 TIDELOG_COMPILE=no \
        run_quietly "$folder/bin/python" -I -m pip install --no-input --editable "${checkout}[dev]" ||
        fail "pip could not install Tidelog (see above); the next run tries again"

    describe_environment "$folder" >"$folder/.tidelog-stamp"
    rm -- "$folder/.tidelog-installing"
}

# --- what the machine has to offer ----------------------------------------------------------------------------------

python_is_recent='import sys; assert sys.version_info >= (3, 11)'
python_has_venv='import ensurepip, venv'

# Sets `found_python` to one that is recent enough, at best one that can make virtual environments as it is.
find_python() {
    local name recent=
    for name in python3 python3.14 python3.13 python3.12 python3.11 python /usr/bin/python3; do
        # Run, not just looked up: version managers leave commands that only print an error.
        "$name" -I -c "$python_is_recent" 2>/dev/null || continue
        if "$name" -I -c "$python_has_venv" 2>/dev/null; then
            found_python=$name
            return
        fi
        recent=${recent:-$name}
    done
    [[ -n $recent ]] || fail "Tidelog needs Python 3.11 or newer, and none is on PATH: install one and run this again"
    need_debian_package "$("$recent" -I -c 'import sys; print("python3.%d-venv" % sys.version_info[1])')" \
        "$recent" -I -c "$python_has_venv"
    found_python=$recent
}

# need_debian_package NAME COMMAND [ARGUMENT...]
#
# Makes sure of the package NAME. It is there if COMMAND is on PATH or, given with arguments, if it succeeds. Root has
# it installed; others are told what to run.
need_debian_package() {
    local name=$1
    shift
    if has_command "$@"; then return; fi
    command -v apt-get >/dev/null || fail "$1 is missing: install what Debian calls $name and run this again"
    ((EUID == 0)) || fail "the package $name is missing: run 'sudo apt-get install $name' and then this again"
    say "Installing the package $name ..."
    if [[ $apt_is_updated == no ]]; then
        run_quietly apt-get update || fail "apt-get update did not work (see above)"
        apt_is_updated=yes
    fi
    DEBIAN_FRONTEND=noninteractive \
        run_quietly apt-get -o DPkg::Lock::Timeout=120 install --yes --no-install-recommends "$name" ||
        fail "apt-get could not install $name (see above)"
    hash -r
    has_command "$@" || fail "the package $name is installed, and still this does not work: $*"
}

# A real Redis to compare with, as `redis-server` on the PATH. Debian's package of that name starts a service, which
# nobody asked for; its program is the one that redis-tools has as redis-check-rdb, and acts by the name it is called.
need_redis_server() {
    PATH=$venv/bin:$PATH
    if has_command redis-server; then return; fi
    need_debian_package redis-tools redis-check-rdb
    ln -sf -- "$(command -v redis-check-rdb)" "$venv/bin/redis-server"
    hash -r
}

# A real browser. Not every machine can have one: then the tests that need it are skipped, and say why.
want_chromium() {
    (need_debian_package chromium chromium) || say "No Chromium: the tests that need a browser will be skipped."
    hash -r
}

has_command() {
    if (($# == 1)); then
        command -v -- "$1" >/dev/null
    else
        "$@" >/dev/null 2>&1
    fi
}

# Runs a command and shows what it printed, on stderr, only if it failed.
run_quietly() {
    local output status=0
    output=$("$@" 2>&1 </dev/null) || status=$?
    if ((status != 0)); then say "$output"; fi
    return "$status"
}
