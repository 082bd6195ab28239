// What to show after an answer. Each process of Airflow's API server looks by itself, so of two answers that follow each
// other the second may come from one that has not looked yet, or has looked earlier: that takes nothing away.

/** What has been shown for some seconds, as it is now. */
function aged(shown, seconds) {
  return { ...shown, looked_at: { ...shown.looked_at, age_seconds: shown.looked_at.age_seconds + seconds } };
}

/** Whether an answer says less than what is shown: nothing yet, or what was seen earlier. */
function isBehind(answer, shown) {
  if (!shown?.looked_at) return false;
  return answer.still_looking === true || (answer.looked_at?.at ?? Infinity) < shown.looked_at.at;
}

/** What is on a card by looks of their own, which end later, each with where their failures are. */
const LOOKED_AT_BESIDE = { drift: "drift_errors", drift_looked_at: "drift_errors", hanging_transactions: "hanging_errors", hanging_looked_at: "hanging_errors", roll: "errors", roll_looked_at: "errors" };

function card(answer, shown, seconds) {
  if (!shown.looked_at) return answer;
  if (isBehind(answer, shown)) return aged(shown, seconds);
  if (!answer.looked_at) return { ...aged(shown, seconds), errors: answer.errors };
  const beside = Object.entries(LOOKED_AT_BESIDE).filter(([name, failures]) => answer[name] === null && !answer[failures]?.length);
  return { ...answer, ...Object.fromEntries(beside.map(([name]) => [name, shown[name]])) };
}

function cards(answer, shown, seconds) {
  const before = new Map(shown.items.map((each) => [each.connection_id, each]));
  return { ...answer, items: answer.items.map((each) => (before.has(each.connection_id) ? card(each, before.get(each.connection_id), seconds) : each)) };
}

/** A list of what several clusters have: the rows of those that are still looked at stay. */
function lists(answer, shown) {
  const kept = shown.items.filter((row) => answer.still_looking.includes(row.connection_id));
  return { ...answer, items: [...answer.items, ...kept], found: answer.found + kept.length, total: answer.total + kept.length };
}

/**
 * The newer one of what is shown and an answer to the same question.
 *
 * `seconds` have passed since the former came.
 */
export function newest(answer, shown, seconds) {
  if (!shown) return answer;
  if (isBehind(answer, shown)) return aged(shown, seconds);
  if (shown.looked_at && !answer.looked_at) return { ...aged(shown, seconds), errors: answer.errors };
  if (Array.isArray(answer.still_looking)) return lists(answer, shown);
  return answer.items?.some((each) => each?.looked_at !== undefined) ? cards(answer, shown, seconds) : answer;
}
