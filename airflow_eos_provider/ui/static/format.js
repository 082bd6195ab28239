// Numbers and times as they are read; one place, so that each view says the same thing in the same way.

const counts = new Intl.NumberFormat("en");

export const dash = "–";

/** 12345 → "12,345"; a dash for what is unknown. */
export function count(value) {
  return typeof value === "number" ? counts.format(value) : dash;
}

/** "1 task", "2 tasks". */
export function many(value, one, several = `${one}s`) {
  return `${count(value)} ${value === 1 ? one : several}`;
}

/** Seconds as a duration: "0.8 s", "12 s", "3 min 20 s", "2 h 5 min", "3 d 4 h". */
export function duration(seconds) {
  if (typeof seconds !== "number") return dash;
  if (seconds < 0) return `−${duration(-seconds)}`;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return two(Math.floor(whole / 60), "min", whole % 60, "s");
  if (whole < 86400) return two(Math.floor(whole / 3600), "h", Math.floor((whole % 3600) / 60), "min");
  return two(Math.floor(whole / 86400), "d", Math.floor((whole % 86400) / 3600), "h");
}

/** From the one to the other as durations, "15 s to 30 s"; once where both read alike. */
export function between(least, most) {
  const [one, other] = [duration(least), duration(most)];
  return one === other ? one : `${one} to ${other}`;
}

/** "id 3", "tasks 0, 1", "ids 0 to 299"; as `eos fencing list` has it. */
export function numbered(numbers, what) {
  if (numbers.length === 1) return `${what} ${numbers[0]}`;
  const isRow = numbers.length > 3 && numbers.every((number, index) => number === numbers[0] + index);
  return `${what}s ${isRow ? `${numbers[0]} to ${numbers.at(-1)}` : numbers.join(", ")}`;
}

function two(large, largeUnit, small, smallUnit) {
  return small ? `${large} ${largeUnit} ${small} ${smallUnit}` : `${large} ${largeUnit}`;
}

const pad = (value) => String(value).padStart(2, "0");

/** Seconds since the epoch as "2026-11-25 19:54:03" in the browser's time zone. */
export function moment(seconds) {
  if (typeof seconds !== "number") return dash;
  const at = new Date(seconds * 1000);
  return `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} ${clock(seconds)}`;
}

/** The time of day alone. */
export function clock(seconds) {
  const at = new Date(seconds * 1000);
  return `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
}

/** Name of the time zone in which `moment` speaks. */
export function zone() {
  return Intl.DateTimeFormat().resolvedOptions().timeZone;
}

/** One end of an interval, always in UTC: "2013-01-01", or "2013-01-01 05:00" where the day alone does not say it. */
export function utc(text, withTime = true) {
  const at = new Date(text);
  if (Number.isNaN(at.getTime())) return String(text);
  const [day, time] = at.toISOString().split("T");
  return withTime ? `${day} ${time.slice(0, 5)}` : day;
}

/** A JSON value on one line. */
export function compact(value) {
  return value === null || value === undefined ? dash : typeof value === "string" ? value : JSON.stringify(value);
}
