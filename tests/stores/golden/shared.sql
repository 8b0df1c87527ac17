
SELECT coalesce(name.text, ''), second.target = '', count(*),
       count(DISTINCT CASE WHEN second.target = '' THEN CAST(second.entry AS text)
                           ELSE second.target || ' at ' || second.place END),
       min(second.found_at)
FROM oncegate_second AS second
LEFT JOIN oncegate_entry AS later ON later.id = second.entry
LEFT JOIN oncegate_name AS name ON name.id = later.surface
WHERE second.dismissed_at IS NULL AND (second.target <> '' OR later.state NOT IN (1, 4))
GROUP BY 1, 2 ORDER BY 1, 2

-- ====
SELECT name, value FROM oncegate_meta WHERE name IN ('schema_version', 'schema', 'moved')
-- ====

SELECT second.id, coalesce(name.text, ''), second.target, second.step, second.place, second.entry,
       second.resource, second.other, second.other_resource, second.found_at, later.state,
       coalesce(person.text, ''), coalesce(second.note, '')
FROM oncegate_second AS second
LEFT JOIN oncegate_entry AS later ON later.id = second.entry
LEFT JOIN oncegate_name AS name ON name.id = later.surface
LEFT JOIN oncegate_name AS person ON person.id = second.dismissed_by
WHERE second.dismissed_at IS NULL AND second.id > {place} ORDER BY second.id LIMIT {place}
