// Formats numbers and times for people.

export function number(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.001 || size >= 1e6)) return value.toExponential(1).replace("-", "−");
  const digits = Number.isInteger(value) ? 0 : size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
  return value.toFixed(digits).replace("-", "−");
}

// A short number, for axes.
export function short(value) {
  return Math.abs(value) >= 1e6 ? number(value) : String(Number(value.toPrecision(4))).replace("-", "−");
}

export function signed(value) {
  return value > 0 ? `+${number(value)}` : number(value);
}

export function percent(value) {
  return Number.isFinite(value) ? `${(100 * value).toFixed(value > 0 && value < 0.1 ? 1 : 0)} %` : "–";
}

export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function when(iso) {
  const time = new Date(iso);
  return Number.isNaN(time.getTime())
    ? iso
    : time.toLocaleString("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
}

// answered, no_spread → words
export function words(name) {
  return String(name).replaceAll("_", " ");
}
